#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/options.h"
#include "core/engine/runner.h"
#include "core/memory/link/unit_link.h"
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

/// The lane of prompts: a model's second runner.
class PrefillLane {
 public:
  virtual ~PrefillLane() = default;
  virtual Runner& runner() = 0;
  /// Null: both lanes have one memory.
  virtual UnitLink* link() { return nullptr; }
};

/// In a process of its own (core/workers), which is a copy of this one as it is now: it has the
/// same weights and the same pools. `model` is what `first` runs, whose memory is shared
/// (SuperblockMapOptions::is_shared); both outlive the lane. Throws as ModelRunner's constructor,
/// WorkerLauncher's and RemoteRunner's.
std::unique_ptr<PrefillLane> make_worker_lane(const LaneThreads& threads,
                                              const models::ModelRunner& first,
                                              const models::Model& model, const std::string& name);

/// On threads of its own, with pages and slots of its own, as many as `answers`, the first lane's
/// runner, has. All but the options outlive the lane. Throws as ModelRunner's constructor,
/// ThreadedRunner's and ThreadedLink's.
std::unique_ptr<PrefillLane> make_lane_with_memory(const LaneThreads& threads,
                                                   const models::Model& model,
                                                   const models::RunnerOptions& options,
                                                   models::ModelRunner& answers);

}  // namespace hyb::app
