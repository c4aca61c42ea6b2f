#pragma once

#include <span>
#include <string>

#include "app/bench/request_metrics.h"

namespace hyb::app {

/// Rows of one workload that differ in how many run at once, each with prompts among answers and in
/// a lane of their own: which of both has more tokens per second of a device, of a user. A line per
/// pair of rows; empty: there is none.
std::string lane_sweep_verdict(std::span<const RequestRow> rows);

}  // namespace hyb::app
