#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/replay/cache_policy.h"
#include "core/replay/shape.h"
#include "core/replay/trace.h"

namespace hyb {

/// One request of a run.
struct RequestFigures {
  std::int32_t prompt_tokens;
  Served served;

  double hit_rate() const {
    return static_cast<double>(served.reused) / static_cast<double>(prompt_tokens);
  }
};

/// One policy under one budget, run over a whole trace from an empty start.
struct ReplayRun {
  PolicyOptions options;
  std::vector<RequestFigures> requests;  ///< in the order served
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;
  std::int64_t matched_tokens = 0;  ///< keys and values were there, perhaps without a snapshot
  double flops_total = 0, flops_saved = 0;      ///< of prefill
  double seconds_total = 0, seconds_saved = 0;  ///< of prefill
  CacheCounters counters;                       ///< at the end

  double hit_rate() const {
    return static_cast<double>(reused_tokens) / static_cast<double>(prompt_tokens);
  }
};

ReplayRun replay(std::span<const ReplayRequest> trace, const ReplayShape& shape,
                 const PolicyOptions& options);

/// All of them, `threads` at a time; in the order of `options`, whatever the number of threads.
std::vector<ReplayRun> replay_all(std::span<const ReplayRequest> trace, const ReplayShape& shape,
                                  std::span<const PolicyOptions> options, int threads);

/// The requests so ordered that those with a longer common prefix stand closer together: a walk
/// down the prefix tree of the prompts, branches in order of arrival. Times become 0. Each has a
/// plan, as `hyb batch` makes it, unless the next prompt goes on in its output: that could not be
/// known beforehand.
std::vector<ReplayRequest> in_depth_first_order(std::vector<ReplayRequest> trace);

}  // namespace hyb
