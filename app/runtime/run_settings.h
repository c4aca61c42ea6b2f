#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/environment.h"
#include "app/model/model_source.h"
#include "app/options/options.h"
#include "app/runtime/lanes.h"
#include "core/engine/draft_tree.h"
#include "kernels/arena/superblock_map.h"
#include "kernels/device.h"
#include "kernels/queue.h"
#include "models/recordings.h"

namespace hyb::app {

/// Source and number of guessed tokens.
struct Drafts {
  /// Off where auto may draft nothing; draft where --draft-model is given alone, whatever it is.
  DraftSource source = DraftSource::off;
  std::string model;             ///< of the sources that have one
  bool is_named = false;         ///< --spec says the source: a model of another kind is an error
  bool may_load_layer = false;   ///< a draft layer of the model's files, where there is one
  std::int32_t draft_steps = 0;  ///< of an answer in a step, one after the other; 0: as it pays
  std::int32_t drafts_room = 0;  ///< that there is room for
  TreeLimits tree = {};          ///< of these

  /// True if `source` takes what --draft-model names.
  bool has_model() const;
};

/// Settings that the options of a command mean for a model on this machine. Nothing after resolve()
/// asks what "auto" is, which device there is, or how much memory is free.
struct RunSettings {
  ModelSource source;
  kernels::Device device = kernels::Device::cpu;
  std::optional<TwoLanes> lanes = {};  ///< none: one lane runs all
  std::vector<int> cards = {};         ///< of the model, that of answers first; none on the CPU
  int threads = 0;                     ///< of all lanes; 0: as many as this process may use
  bool batch_invariant = false;
  models::GraphOptions graphs = {};
  std::int32_t context = 0;
  MemoryBudget memory;                          ///< its bytes are those of this machine or card
  std::optional<std::size_t> pool_memory = {};  ///< bytes; none: what `memory` leaves
  kernels::SuperblockMapOptions mapping = {};   ///< of the pools of answers
  TypeOptions types;                            ///< what these mean for a model outline_of() says
  ReuseOptions reuse;
  Drafts drafts = {};

  /// Bounds `memory` by a number of bytes, from which nothing shrinks.
  void set_memory(std::size_t bytes);
  /// Looks again at how much is free: where much time has passed since resolve().
  void measure_memory();
};

/// Decides all of it, once for a command; nothing is read but the model's place. Throws
/// Error(model) where there is no such model, and Error(usage) for what is of no use together, for
/// a card that is not there, and for two cards that are unlike.
RunSettings resolve(const ModelOptions& options, const Environment& environment);

/// Throws Error(usage) where there are two lanes and a draft model. `has_head`: what --draft-model
/// names is a head, a part of the model.
void check_lanes(const RunSettings& settings, bool has_head);

/// Returns how pools are mapped. Throws Error(usage) for options that make no sense together.
kernels::SuperblockMapOptions mapping_of(const PoolOptions& options, kernels::Device device);

/// Makes the queue of the whole model, or of answers on cards, with the threads of all lanes.
kernels::Queue make_queue(const RunSettings& settings);

/// Returns the settings of a draft model within this much memory: the same as those of its model
/// except where a draft model needs others.
RunSettings draft_settings(const RunSettings& settings, std::size_t bytes);

}  // namespace hyb::app
