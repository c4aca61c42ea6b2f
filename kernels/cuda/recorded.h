#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/recording.h"
#include "kernels/step_tables.h"

namespace hyb::kernels::cuda {

/// What make_step_tables() and record() are on a card.
std::unique_ptr<StepTables> make_step_tables(Stream& stream, std::size_t bytes);
std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& body);

}  // namespace hyb::kernels::cuda
