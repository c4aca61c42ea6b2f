#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "app/bench/load_driver.h"
#include "app/bench/workload.h"
#include "app/replay/cache_policy.h"

namespace hyb::app {

/// A trace under a policy that only hyb replay knows: the policy says how much of each prompt
/// another engine would have reused, the model really resumes there and runs all the rest.
struct PolicyReplay {
  Engine& engine;
  std::span<const ReplayRequest> trace;
  TraceOptions options;  ///< the trace as it is: neither its times nor a scale
  PolicyOptions policy;
  ReplayShape shape;
  /// Around the stretches that count: preparing a prefix is not measured.
  std::function<void(bool is_measured)> measure;
  std::function<void(std::size_t ended)> progress;
  std::function<bool()> is_stopped;
};

/// Whether it is one of those; false for "" and for what the engine itself can do: gd, lru, none.
bool is_foreign_policy(const std::string& name);

/// The policy of that name, as hyb replay has it, with so much memory. Throws Error(usage) where
/// there is none.
PolicyOptions foreign_policy(const std::string& name, std::size_t budget_bytes);

/// Requests are served one after the other, as the policy sees them. For each the engine forgets
/// all, prefills what the policy reuses, and then is measured; the duration is of measured
/// stretches alone.
LoadResult run_policy(const PolicyReplay& replay, Timer& timer);

}  // namespace hyb::app
