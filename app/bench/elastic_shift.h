#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/bench/metered_runner.h"
#include "app/bench/request_metrics.h"
#include "app/ui/table.h"
#include "core/base/json.h"
#include "core/memory/pool/layout.h"

namespace hyb::app {

/// Requests that all come at once.
struct ShiftPhase {
  std::string_view name;
  std::int32_t requests = 0, prompt_tokens = 0, answer_tokens = 0;
};

RequestCase case_of(const ShiftPhase& phase);

/// Load that shifts: few long sequences, whose keys and values fill the memory, then many short
/// ones, whose states do, and both again. Of each there are twice as many as elastic memory holds,
/// and of short ones as many as have the same number of tokens in all.
struct ElasticShift {
  std::array<ShiftPhase, 2> phases;
  static constexpr std::int32_t rounds = 2;
};

struct ShiftLimits {
  double state_share_max = 0.9;  ///< of the ratios that are compared: long sequences fit all
  std::int32_t length_max = 0;   ///< of a sequence
  std::int32_t sequences_max = 0;
  std::int32_t scale_down = 1;  ///< long sequences are as much shorter
};

/// Long sequences have keys and values of shift_states states, or of what the greatest share
/// leaves for them where that is less. Throws Error(memory) where that is too little to differ from
/// short ones, Error(usage) as with_state_share().
ElasticShift elastic_shift(const MemoryLayout& layout, const ShiftLimits& limits);
inline constexpr std::int32_t shift_states = 4;
/// The states that memory is for unless a size is given: a tenth of it then holds a long sequence.
inline constexpr std::int32_t shift_memory_states = 10 * shift_states;

/// Throws Error(usage) for what is not a number between 0 and 1.
std::vector<double> parse_shares(std::span<const std::string> texts);

/// A phase under one way to share memory: all its rounds and repetitions.
struct ShiftRow {
  RequestRow row = {};
  double running = 0;  ///< sum over steps of the sequences that held memory after it
};

struct ShiftSetting {
  std::optional<double> state_share;  ///< nothing: elastic
  std::array<ShiftRow, 2> phases;     ///< as ElasticShift's

  std::string name() const;  ///< "elastic", "0.3"
};

struct ShiftComparison {
  ElasticShift shift;
  Ceilings ceilings = {};
  std::vector<ShiftSetting> settings;  ///< elastic first
};

/// Cost of a change of owners: how much longer such steps took than the median of those without
/// changes of owners that had as many spans and tokens, under any setting.
struct FlipCost {
  std::int64_t steps = 0;         ///< with such changes that have one to be compared with
  std::int64_t without = 0;       ///< likewise, the others
  double p50_ms = 0, p99_ms = 0;  ///< with
  double other_p50_ms = 0, other_p99_ms = 0;  ///< without
};
FlipCost flip_cost(const ShiftComparison& comparison, const ShiftSetting& setting);

Table shift_table(const ShiftComparison& comparison);
/// Elastic memory against the best ratio of each phase, and the best one for all of them.
std::string shift_verdict(const ShiftComparison& comparison);
/// A row of each phase of each setting, and one of all its phases.
std::vector<Json> shift_rows(const ShiftComparison& comparison);

}  // namespace hyb::app
