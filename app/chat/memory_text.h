#pragma once

#include <string>

#include "app/session.h"

namespace hyb::app {

/// What /mem shows: how the budget is divided.
std::string memory_text(const MemoryPlan& plan);

}  // namespace hyb::app
