#pragma once

#include <optional>
#include <string>

#include "app/options.h"
#include "core/workers/remote_runner.h"
#include "core/workers/worker_launcher.h"
#include "kernels/queue.h"
#include "models/model.h"
#include "models/runner.h"

namespace hyb::app {

/// How --disaggregate divides the CPU.
struct LaneThreads {
  int decode, prefill;
};

/// nullopt: one lane runs prompts and answers. Throws Error(usage) for what is of no use together,
/// and for what has no second lane.
std::optional<LaneThreads> lane_threads_of(const ModelOptions& options);

/// Throws Error(usage) where two lanes leave a draft model no threads. `has_head`: what
/// --draft-model names is a head, a part of the model.
void check_lanes(const ModelOptions& options, bool has_head);

/// Threads of all lanes; 0: as many as this process may use. Throws as lane_threads_of().
int threads_of(const ModelOptions& options);

/// Of the lane of answers, whose threads are the first; that of prompts has the others.
kernels::Queue decode_queue(const LaneThreads& threads);
/// Of one lane that has the threads of both.
kernels::Queue undivided_queue(const LaneThreads& threads);

/// The lane of prompts: a model's second runner, in a process of its own (core/workers). That is a
/// copy of this one as it is now, so it has the same weights, and it has the same pools.
class PrefillLane {
 public:
  /// `model` is what `first` runs, whose memory is shared (SuperblockMapOptions::is_shared); both
  /// outlive this. Throws as ModelRunner's constructor, WorkerLauncher's and RemoteRunner's.
  PrefillLane(const LaneThreads& threads, const models::ModelRunner& first,
              const models::Model& model, const std::string& name);

  RemoteRunner& runner() { return runner_; }

 private:
  WorkerLauncher launcher_;
  RemoteRunner runner_;
};

}  // namespace hyb::app
