#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/load_driver.h"
#include "app/bench/workload.h"
#include "app/ui/table.h"
#include "core/base/json.h"
#include "core/engine/engine.h"

namespace hyb::app {

/// Answers that go on all the time, while long prompts arrive at even distances.
struct LaneMix {
  std::int32_t answers;        ///< that go on
  std::int32_t prompts;        ///< that arrive
  std::int32_t prompt_tokens;  ///< of each of these
  std::int32_t answer_tokens;  ///< of the answer of each
  double rate;                 ///< prompts per second
};

/// Result of one run of a mix, from the first arrival to the last answer to a prompt. Samples are
/// in order of time.
struct LaneMixRun {
  double duration_s = 0;
  std::vector<double> ttft_ms;     ///< of prompts that arrived: first token - arrival
  std::vector<double> itl_ms;      ///< of answers that go on: all gaps between their tokens
  std::int64_t answer_tokens = 0;  ///< of answers that go on
  std::int64_t prompt_tokens = 0;  ///< of prompts that arrived
};

/// Runs the mix on an idle engine, which is idle afterwards. `draw` makes a new
/// prompt of this many tokens at every call. nullopt: `is_stopped` said so. Throws what the engine
/// throws, and Error(memory) where not all requests have room.
std::optional<LaneMixRun> run_mix(Engine& engine, const LaneMix& mix, Timer& timer,
                                  const std::function<Request(std::int32_t tokens)>& draw,
                                  const std::function<bool()>& is_stopped);

/// The same mix with prompts in chunks among answers, and in a lane of their own.
struct LaneComparison {
  LaneMix mix;
  std::string unit = "threads";  ///< what the lanes divide: threads or cards
  std::string units_together = {}, units_apart = {};
  std::vector<LaneMixRun> together = {}, apart = {};  ///< repetitions
};

Table lane_table(const LaneComparison& comparison);
/// Says which side has the better figure of each kind, with the figures.
std::string lane_verdict(const LaneComparison& comparison);
/// A row of each; samples are arrays.
std::vector<Json> lane_rows(const LaneComparison& comparison);

}  // namespace hyb::app
