#pragma once

#include <functional>
#include <string>
#include <system_error>
#include <thread>

#include "core/base/error.h"

namespace hyb {

/// Starts a thread that receives no signals (WorkerSignals). Throws error_of() what keeps it from
/// starting; the text begins with `whose` it is.
std::jthread start_thread(const std::string& whose, std::function<void()> body);

/// A failed call of the C++ library: Error(memory) where memory was short, else Error(runtime). A
/// thread that cannot be started is "Resource temporarily unavailable" otherwise, whatever the
/// reason.
Error error_of(const std::system_error& error);

}  // namespace hyb
