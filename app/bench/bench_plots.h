#pragma once

#include <span>

#include "app/bench/kernel_bench.h"
#include "app/bench/request_metrics.h"
#include "app/ui/svg_plot.h"

namespace hyb::app {

/// Tokens per second of tests of one kind over their depth; a line per test, batch and
/// mode of --graphs.
Plot depth_plot(std::span<const Measurement> rows);

/// Median E2EL over tokens generated per second, as concurrency or rate grows; a line per workload,
/// condition, policy and mode of --graphs.
Plot load_plot(std::span<const RequestRow> rows);

/// Tokens generated per second of the device over those that one user sees per second, as
/// concurrency or rate grows, which is what points are labelled with; a line per way that prompts
/// run, and per workload, condition and policy where these vary.
Plot lane_plot(std::span<const RequestRow> rows);

/// Prompt tokens reused so far, of all so far, over time; a line per row. For traces.
Plot hit_rate_plot(std::span<const RequestRow> rows);

}  // namespace hyb::app
