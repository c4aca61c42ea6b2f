#pragma once

#include <cstdint>
#include <span>

#include "app/replay/replay.h"
#include "app/ui/table.h"
#include "core/base/json.h"

namespace hyb::app {

/// A row per run: token hit rate, FLOPs and seconds of prefill saved, evictions, flips, bytes by
/// owner.
Table runs_table(std::span<const ReplayRun> runs);

/// An array of the same rows, with every count.
Json runs_json(std::span<const ReplayRun> runs);

/// The analyses of the Marconi paper.
enum class Analysis : std::uint8_t {
  reuse,       ///< share of what was stored that was ever reused
  bytes,       ///< of one sequence by its length: keys, values, states
  efficiency,  ///< FLOPs that a stored prefix saves, per byte, by its length
  bins,        ///< token hit rate by length of the prompt
  quantiles,   ///< of the requests' hit rates and of their seconds of prefill
};

/// `bytes` and `efficiency` look at the shape alone.
Table analysis_table(Analysis analysis, const ReplayShape& shape, std::span<const ReplayRun> runs);

/// The same as an array of objects.
Json analysis_json(Analysis analysis, const ReplayShape& shape, std::span<const ReplayRun> runs);

}  // namespace hyb::app
