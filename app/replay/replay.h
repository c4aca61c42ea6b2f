#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/bench/simulated_policy.h"
#include "app/replay/cache_policy.h"
#include "app/replay/shape.h"
#include "core/engine/trace.h"

namespace hyb::app {

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

/// The requests in the order of a depth-first walk of the prefix tree of the prompts, branches in
/// order of arrival. Times become 0. Each has a plan, as `hyb batch` makes it, unless the next
/// prompt continues in its output: that could not be known in advance.
std::vector<ReplayRequest> in_depth_first_order(std::vector<ReplayRequest> trace);

/// Policies and their options as given on the command line; lists are separated by commas.
struct PolicyLists {
  std::vector<std::string> policies;
  std::vector<std::string> snapshots;
  std::vector<std::string> budgets;
  std::vector<double> ratios;
  std::int32_t block_tokens = 32;
  std::string sglang_states;   ///< turn-end or both
  std::string host_tier = {};  ///< a size: lru and gd run without and with it; empty: without
};

/// Every combination: budgets outermost, then policies as listed (`all`: every one), their ratios
/// and snapshots. Options that a policy does not have are not varied for it: only sglang has a
/// ratio, none and bound have neither snapshots nor (bound) a budget.
/// Throws Error(usage) naming what is unknown or out of range.
std::vector<PolicyOptions> policy_options(const PolicyLists& lists);

/// The policies, for traces that a model runs under them.
PolicyLab policy_lab();

/// The policy with the options that distinguish it: "sglang 0.9 int8".
std::string label_of(const PolicyOptions& options);

}  // namespace hyb::app
