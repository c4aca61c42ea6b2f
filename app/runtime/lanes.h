#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/options/options.h"
#include "core/engine/runner.h"
#include "core/memory/link/unit_link.h"
#include "kernels/arena/superblock_map.h"
#include "kernels/device.h"
#include "kernels/queue.h"
#include "models/model.h"
#include "models/runner.h"

namespace hyb::app {

/// Places where --disaggregate runs answers (decode) and prompts (prefill).
struct TwoLanes {
  struct Lane {
    int threads;   ///< of the CPU; with cards both lanes have the same, for what cards leave to it
    int card = 0;  ///< with cards
  };
  kernels::Device device;
  Lane decode, prefill;
  bool share_memory;  ///< else each has pages and slots of its own

  bool have_two_cards() const { return decode.card != prefill.card; }
  /// Threads of the CPU that compute at the same time.
  int threads() const {
    return device == kernels::Device::cpu ? decode.threads + prefill.threads : decode.threads;
  }
  /// "1 + 1" threads, "cuda0 + cuda1": of answers and of prompts.
  std::string text() const;
};

/// Returns the lanes of --disaggregate on this device; nullopt if one lane runs prompts and
/// answers. Throws Error(usage) for what is of no use together, for a card that is not there, and
/// for two cards that are unlike. Only resolve() asks this (app/runtime/run_settings.h).
std::optional<TwoLanes> lanes_of(const ModelOptions& options, kernels::Device device);

/// Flags for a session that runs prompts both ways, which takes lanes that share memory: where no
/// device is given, on the first card.
LaneFlags lanes_to_compare(const ModelOptions& options);

/// On the CPU, of the lane of answers, whose threads are the first; that of prompts has the others.
kernels::Queue decode_queue(const TwoLanes& lanes);
/// On the CPU, of one lane that has the threads of both.
kernels::Queue undivided_queue(const TwoLanes& lanes);
/// On cards, of the lane of prompts.
kernels::Queue prefill_queue(const TwoLanes& lanes, bool batch_invariant);

/// Returns how the pools of answers, or of prompts, are mapped: `mapping` on the lane's card.
kernels::SuperblockMapOptions mapping_of_decode(const TwoLanes& lanes,
                                                kernels::SuperblockMapOptions mapping);
kernels::SuperblockMapOptions mapping_of_prefill(const TwoLanes& lanes,
                                                 kernels::SuperblockMapOptions mapping);

/// The lane of prompts: a model's second runner.
class PrefillLane {
 public:
  virtual ~PrefillLane() = default;
  virtual Runner& runner() = 0;
  /// Null: both lanes have one memory.
  virtual UnitLink* link() { return nullptr; }
};

/// In the memory of `answers`, which is what the first lane runs and outlives this, as `model`
/// does. On the CPU in a process of its own (core/workers), which is a copy of this one as it is
/// now: it has the same weights and the same pools, which are shared
/// (SuperblockMapOptions::is_shared). On a card in a stream of its own. Throws as ModelRunner's
/// constructor, WorkerLauncher's and RemoteRunner's.
std::unique_ptr<PrefillLane> make_sharing_lane(const TwoLanes& lanes, models::ModelRunner& answers,
                                               const models::Model& model, const std::string& name);

/// On the CPU with pages and slots of its own, as many as `answers` has. All but the options
/// outlive the lane. Throws as ModelRunner's constructor, ThreadedRunner's and ThreadedLink's.
std::unique_ptr<PrefillLane> make_lane_with_memory(const TwoLanes& lanes,
                                                   const models::Model& model,
                                                   const models::RunnerOptions& options,
                                                   models::ModelRunner& answers);

/// On another card, that of `queue`, which has the weights of `model`, too. All but the options
/// outlive the lane. Throws as ModelRunner's constructor and CardLink's.
std::unique_ptr<PrefillLane> make_lane_on_card(kernels::Queue& queue, const models::Model& model,
                                               const models::RunnerOptions& options,
                                               models::ModelRunner& answers);

}  // namespace hyb::app
