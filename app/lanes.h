#pragma once

#include <optional>

#include "app/options.h"
#include "core/engine/threaded_runner.h"
#include "kernels/queue.h"
#include "models/runner.h"

namespace hyb::app {

/// How --disaggregate divides the CPU.
struct LaneThreads {
  int decode, prefill;
};

/// nullopt: one lane runs prompts and answers. Throws Error(usage) for what is of no use together,
/// and for what has no second lane.
std::optional<LaneThreads> lane_threads_of(const ModelOptions& options);

/// Threads of all lanes; 0: as many as this process may use. Throws as lane_threads_of().
int threads_of(const ModelOptions& options);

/// Of the lane of answers, whose threads are the first; that of prompts has the others.
kernels::Queue decode_queue(const LaneThreads& threads);
/// Of one lane that has the threads of both.
kernels::Queue undivided_queue(const LaneThreads& threads);

/// The lane of prompts: a model's second runner, on threads of its own.
class PrefillLane {
 public:
  /// `first` outlives this. Throws as ModelRunner's constructor and ThreadedRunner's.
  PrefillLane(const LaneThreads& threads, const models::ModelRunner& first);

  Runner& runner() { return threaded_; }
  std::size_t workspace_bytes() const { return runner_.workspace_bytes(); }

 private:
  kernels::Queue queue_;
  models::ModelRunner runner_;
  ThreadedRunner threaded_;
};

}  // namespace hyb::app
