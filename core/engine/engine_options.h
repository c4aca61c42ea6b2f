#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/engine/draft_tree.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

class Drafter;
class Runner;
class UnitLink;

/// Says whether and how drafts of tokens are verified. Answers do not depend on it.
struct SpeculationOptions {
  bool is_on = false;
  std::int32_t draft_steps = 0;  ///< of a sequence in a step, at most 7; 0: by what is measured
  TreeLimits tree = {};          ///< 0 rows: twice those of the drafts alone
  Drafter* drafter = nullptr;    ///< outlives the engine; null: repeated text (NgramDrafter)
  /// Without a drafter: the runner's model drafts, where Runner::can_draft().
  bool by_model = false;
};

struct EngineOptions {
  std::int32_t length_max;          ///< most tokens of one sequence: prompt and answer
  std::int32_t sequences_max = 64;  ///< most sequences that run at once
  std::int32_t chunk_tokens = 512;  ///< most prompt tokens of one sequence in one step
  /// Most prompt tokens, of all sequences, of a step in which answers go on: they wait for all of
  /// it. 0: as many as there is room for.
  std::int32_t mixed_tokens = 0;
  PrefixCacheOptions prefixes = {};     ///< what is remembered of sequences that ran
  std::int32_t shared_tokens_min = 64;  ///< a sequence waits for a running one that has this many
                                        ///< tokens to run that it needs, too; 1 or more
  std::int32_t look_ahead = 8;          ///< waiting sequences whose snapshots to resume from are
                                        ///< pinned while others are evicted
  /// States (of sequences and snapshots) for which the pool orders memory ahead of need, in a step
  /// in which every sequence has begun its answer and after others began: 0 on a device whose
  /// memory is there from the start.
  std::int32_t states_ahead = 0;
  /// The cost of prefill is learned from the steps, starting with prefixes.cost: it drives
  /// eviction. Off, eviction depends on no clock. With int8 snapshots it should be off, since there
  /// a reused prefix and one that is run again differ.
  bool measures_prefill = false;
  SpeculationOptions speculation = {};
  /// Runs prompts, up to the first token of each answer, while the engine's runner goes on with
  /// answers: an asynchronous runner of the same capacity, on the same bytes, whose steps never
  /// have orders. What a step had that it lost (StepLost, of shared memory) is run again. It
  /// outlives the engine. Null: one runner runs everything.
  Runner* prefill_lane = nullptr;
  /// If the prefill lane has memory of its own, this is the way between that and the memory of
  /// answers. Its steps then have orders, and its pool may have another number of superblocks. It
  /// outlives the engine. Null: they share one memory.
  UnitLink* link = nullptr;
  /// Bytes that the link copies in a second, to compare with running a prompt again.
  double link_bytes_per_second = 4e9;
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  /// Memory is not shared elastically: this share of the superblocks is for states for good
  /// (with_state_share()). For comparisons; not with a prefill lane.
  std::optional<double> state_share = {};
  bool audit = false;  ///< checks all counts after every step: slow
};

}  // namespace hyb
