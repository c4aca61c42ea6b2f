#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/engine/sequence.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

/// The running sequence that `newcomer`, which can resume at `resumable` without it, had better
/// wait for: an older one that is yet to run a prefix that both begin with, at least `tokens_min`
/// longer than what can be resumed. The length is one at which the prefix_owner wants a snapshot
/// already where that costs the newcomer fewer than tokens_min. nullopt: there is none. Only an
/// older one, so nobody waits for someone who waits for him.
std::optional<PrefixOwner> prefix_owner_for(const Sequence& newcomer, std::int32_t resumable,
                                            std::int32_t tokens_min,
                                            std::span<Sequence* const> running);

/// Whether the prefix_owner still runs and has not come to the end of the prefix.
bool is_awaited(const PrefixOwner& prefix_owner, std::span<Sequence* const> running);

/// What sequences are going to take from a pool beyond what they hold, in units of each view. An
/// estimate for deciding who starts; memory is had from Memory::reserve alone.
class MemoryDemand {
 public:
  explicit MemoryDemand(const MemoryPool& pool);

  /// Room for so many tokens more.
  MemoryDemand& add_growth(const Memory& memory, std::int32_t tokens);

  /// A running sequence gets through all tokens known of it, and takes a page more per group:
  /// starting another one that soon sends it away is wasted work.
  MemoryDemand& add_running(const Sequence& sequence);

  /// One starts that shares the pages of its first `resumable` tokens.
  MemoryDemand& add_newcomer(std::int32_t tokens, std::int32_t resumable);

  /// Slots for the snapshots of those that run: a snapshot takes the live slot, and the sequence
  /// goes on in another one.
  MemoryDemand& add_slots(std::int32_t slots);

  /// Whether what is free now will do.
  bool fits() const;

  /// The view that lacks most superblocks; whoever gives it one helps.
  ViewId driest() const;

  /// Whether it would do if nobody but these held anything.
  bool fits_beside(std::span<Sequence* const> running) const;

 private:
  std::int64_t& units(ViewId view) { return units_[static_cast<std::size_t>(index(view))]; }
  void add_pages(std::int32_t group, std::int32_t length, std::int64_t pages);

  const MemoryPool* pool_;
  std::vector<std::int64_t> units_;
};

struct SchedulerLimits {
  std::int32_t sequences_max;  ///< that hold memory at once; at most the tokens of a step
  std::int32_t chunk_tokens;   ///< of one sequence in one step
  std::int32_t step_tokens;
  std::int32_t step_spans = 0;          ///< below sequences_max: as many as those
  std::int32_t shared_tokens_min = 64;  ///< fewer are run again rather than waited for
  std::int32_t look_ahead = 8;          ///< of those that wait, so many have their snapshots spared
};

/// What one sequence does in the next step, or one of several pieces of that: they stand one behind
/// the other, and after each but the last a snapshot is wanted.
struct Assignment {
  Sequence* sequence;
  std::int32_t tokens;
  std::int32_t cuts = 0;  ///< pieces of the sequence before this one
};

struct SchedulerCounts {
  std::int64_t preemptions = 0;  ///< sequences that lost their memory and waited again
  std::int64_t deferrals = 0;  ///< times that one could not continue, or start, for lack of memory
  std::int64_t prefix_waits = 0;  ///< times that one waited for another's prefix
};

/// Decides who runs. Sequences that need one token come first, then chunks of prompts, oldest
/// first, then those that wait, in order of age: only one that waits for a prefix that an older one
/// is running is passed by others. Sequences start from the deepest snapshot there is. A chunk is
/// cut where a snapshot is wanted; what is behind a cut runs in the same step where there is memory
/// for it and for one slot more.
///
/// When the pool is dry, snapshots go first (those that the next few who wait will resume from
/// after all others), then the prompts held for further choices, then the youngest sequence gives
/// its memory back and waits; the oldest always gets on, so every sequence ends. One that waits for
/// a tier is passed by others; nothing of the pool is held for it.
///
/// It holds no sequence: whoever adds one removes or retires it before it dies.
class Scheduler {
 public:
  Scheduler(MemoryPool& pool, PrefixCache& prefixes, const SchedulerLimits& limits)
      : pool_(&pool), prefixes_(&prefixes), limits_(limits) {}

  /// The choices of one request wait for memory. The first runs the prompt for all of them, but for
  /// its last token; from there each goes on by itself.
  void add(std::span<Sequence* const> choices);

  /// The sequence runs no more and its memory is released. It need not be known here.
  void remove(Sequence& sequence);

  /// The same of one that ended well: what it leaves is a snapshot, if that is worth it.
  void retire(Sequence& sequence);

  /// Those that the next plan may start and that did not look into a tier since they were added, or
  /// last sent away. Who starts from the prompt of another choice has no use for one.
  std::vector<Sequence*> about_to_start() const;
  /// Somebody does not wait for a tier any more.
  void retry_admission() { may_start_ = true; }

  /// Spans for the next step, with memory reserved. Empty only when nobody is here but those that
  /// wait for a tier. Valid until the next call. Throws Error(memory), with the figures, when the
  /// device has not even the memory that the oldest sequence needs.
  std::span<const Assignment> plan();

  /// While the step that was planned runs: whether the next plan will be the same sequences again,
  /// with one token each that this step draws, unless one of them ends by it. Then there is memory
  /// for that already, and nobody of them is about to leave a snapshot.
  bool foresees_next(std::span<const Assignment> plan);

  /// The step is done and the sequence has said so: leaves a snapshot where one is wanted.
  void ran(Sequence& sequence);

  /// The same of one whose prompt has run whole: leaves a snapshot there with the logits behind it.
  void keep_logits(Sequence& sequence, std::span<const float> logits);

  /// After a failed step no memory is to be trusted: all sequences wait to be computed again, and
  /// no snapshot is left.
  void release_all();

  std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }
  const SchedulerCounts& counts() const { return counts_; }

  /// Throws when pages, slots and sequences do not add up: a bug of ours.
  void audit() const;

 private:
  struct Older {
    using is_transparent = void;
    bool operator()(const Sequence* a, const Sequence* b) const { return a->age() < b->age(); }
    bool operator()(const Sequence* a, const ArrivalOrder& b) const { return a->age() < b; }
    bool operator()(const ArrivalOrder& a, const Sequence* b) const { return a < b->age(); }
  };
  enum class Admission : std::uint8_t { started, follows, awaits_tier, no_room };

  void plan_all();
  void check_committed();
  void pin_awaited();
  void plan_single_tokens();
  void plan_chunks();
  void plan_newcomers();
  void assign(Sequence& sequence, std::int32_t tokens);
  void assign_behind_cuts(Sequence& sequence, std::int32_t tokens);
  std::int32_t unassign(Sequence& sequence);
  bool assign_chunk(Sequence& sequence);

  Admission admit(Sequence& sequence);
  bool admit_choice(Sequence& sequence, const Checkpoint& prompt);
  bool follows(Sequence& sequence, std::int32_t resumable);
  void cut(Sequence& sequence, std::int32_t length);
  void publish_shared_prefixes(const Sequence& sequence, Lookup& lookup);
  MemoryDemand demand_beside_running(const Sequence& sequence, std::int32_t resumable) const;
  bool make_room_for(const Sequence& sequence, Lookup& lookup);
  std::optional<Memory> memory_for(const Sequence& sequence, Lookup& lookup);
  void start(Sequence& sequence, Memory memory, const Resumed& resumed);

  void release_choices(Sequence& first);
  bool make_room(const Snapshot* keep = nullptr);
  bool drop_checkpoint();
  void drop_checkpoint_if_unused(RequestId request);
  void preempt_youngest();

  MemoryPool* pool_;
  PrefixCache* prefixes_;
  SchedulerLimits limits_;
  std::vector<Sequence*> running_;  ///< oldest first
  std::set<Sequence*, Older> waiting_;
  std::map<RequestId, std::vector<Sequence*>> held_;  ///< choices for which the first runs
  std::map<RequestId, Checkpoint> checkpoints_;  ///< prompts that more choices are to start from
  std::vector<Assignment> plan_;
  std::vector<ArrivalOrder> spared_for_;  ///< who waited when snapshots were spared,
  std::int64_t spared_at_ = 0;            ///< and how many had been published
  std::vector<Snapshot*> spared_;
  SchedulerCounts counts_;
  std::int32_t tokens_left_ = 0;
  std::int32_t spans_spare_ = 0;  ///< beyond one for each sequence
  std::int32_t withheld_ = 0;     ///< superblocks, when the last plan was made
  bool preempted_ = false;
  bool has_asked_ = false;  ///< the device, for what the oldest lacks, and it had nothing yet
  bool may_start_ = false;  ///< something happened since a newcomer found no room
};

}  // namespace hyb
