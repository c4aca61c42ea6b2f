#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/engine/room_maker.h"
#include "core/engine/sequence.h"
#include "core/engine/step_plan.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

/// Says which sequences a plan is for: all of them or, where prompts have a lane of their own,
/// those that begin (or run again what they lost), or those that go on (Sequence::decodes).
enum class Lane : std::uint8_t { all, prefill, decode };

struct SchedulerCounts {
  std::int64_t preemptions = 0;  ///< sequences that lost their memory and waited again
  std::int64_t deferrals = 0;  ///< times that one could not continue, or start, for lack of memory
  std::int64_t prefix_waits = 0;  ///< times that one waited for another's prefix
};

/// Decides which sequences run. Those that need one token come first, then chunks of prompts,
/// oldest first, then waiting ones in order of arrival: only one that waits for a prefix that an
/// older one is running is overtaken by others. Sequences start from the deepest snapshot there is.
/// A chunk is cut where a snapshot is wanted; what is after a cut runs in the same step where there
/// is memory for it and for one more slot.
///
/// When the pool is dry, RoomMaker gives up what it can (the snapshots that the next few waiting
/// sequences will resume from after all others), then the youngest sequence is preempted and waits;
/// the oldest always continues, so every sequence ends. One that waits for a tier is overtaken by
/// others; nothing of the pool is held for it.
///
/// It does not own sequences: a sequence is removed or retired before it is destroyed.
class Scheduler {
 public:
  Scheduler(MemoryPool& pool, PrefixCache& prefixes, const SchedulerLimits& limits)
      : pool_(&pool),
        prefixes_(&prefixes),
        limits_(limits),
        room_(pool, prefixes, running_, checkpoints_),
        plan_(pool, limits, running_) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The choices of one request wait for memory. The first runs the prompt for all of them, except
  /// its last token; from there each continues by itself.
  void add(std::span<Sequence* const> choices);

  /// The sequence runs no more and its memory is released. It need not have been added.
  void remove(Sequence& sequence);

  /// The same for one that ended normally: it leaves a snapshot, if that is worth it.
  void retire(Sequence& sequence);

  /// For hand-over: the running sequence is this scheduler's no more, and takes its memory along.
  Memory take(Sequence& sequence);
  /// It runs here from now on. Its memory is of this scheduler's pool.
  void adopt(Sequence& sequence, Memory memory, const Resumed& resumed = {});
  /// The waiting sequence is this scheduler's no more, nor are choices that wait for its prompt:
  /// all of them, in the order for another scheduler's add().
  std::vector<Sequence*> withdraw(Sequence& sequence);

  /// Returns whether the sequence runs or waits here.
  bool has(const Sequence& sequence) const;

  /// Sequences that run, the oldest first.
  std::span<Sequence* const> sequences() const { return running_; }
  /// Waiting sequences that have not been looked up elsewhere since they were added or preempted.
  /// One that starts from the prompt of another choice does so here.
  std::vector<Sequence*> unplaced() const;

  /// Makes room, by evicting snapshots if necessary, for a sequence that comes with its known
  /// tokens beside those that places are kept for. The lookup says what it shares. False: there is
  /// none, beside those that run here.
  bool make_room_for_arrival(const Sequence& sequence, const Lookup& lookup);

  /// No sequence starts here in the places of this many that are to be adopted.
  void keep_places(std::int32_t places) { places_kept_ = places; }
  RoomMaker& room() { return room_; }

  /// Sequences that the next plan may start and that have not been looked up in a tier since they
  /// were added or preempted. A sequence that starts from the prompt of another choice needs no
  /// tier.
  std::vector<Sequence*> about_to_start() const;
  /// A sequence does not wait for a tier any more.
  void retry_admission() { may_start_ = true; }

  /// Spans for the next step, with memory reserved. Empty only when all sequences wait for a tier,
  /// there is none, or `others_hold_memory` and will give it back. Valid until the next call.
  /// Throws Error(memory), with the figures, when the device has not even the memory that the
  /// oldest sequence needs.
  ///
  /// The plan of a lane has sequences of that lane alone, and may be empty. One for prefill is made
  /// while no step is under way; it alone lets sequences start, and leaves those of the other lane
  /// the memory for one token. While others hold memory none is preempted because nothing runs.
  std::span<const Assignment> plan(Lane lane = Lane::all, bool others_hold_memory = false);
  /// The last one, for drafts.
  StepPlan& step_plan() { return plan_; }

  /// While the planned step runs: whether the next plan will have the same sequences, with one
  /// token each that this step draws, unless one of them ends by it. Then memory for it is
  /// reserved, and none of them is about to leave a snapshot.
  bool predicts_next(std::span<const Assignment> plan);

  /// The sequence ran in a step: leaves a snapshot where one is wanted.
  void ran(Sequence& sequence);

  /// A step failed that is not under way any more: those of its plan wait to be computed
  /// again, and so do those that its orders were to move or fill. Snapshots that its orders were to
  /// fill are dropped. The plan's sequences may be gone.
  ///
  /// Where it is not known that this is all, no memory can be trusted: all sequences wait to be
  /// computed again, and all snapshots are dropped. Those under way in the prefill lane stay: no
  /// order names their memory.
  void fail(std::span<const Assignment> plan, std::span<const Order> orders, bool is_known);

  std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }
  const SchedulerCounts& counts() const { return counts_; }

  /// Throws when pages, slots and sequences do not add up: a bug of ours. `others`: what holds
  /// memory beside sequences and snapshots.
  void audit(std::span<const Checkpoint* const> others = {}) const;

 private:
  struct Older {
    using is_transparent = void;
    bool operator()(const Sequence* a, const Sequence* b) const { return a->age() < b->age(); }
    bool operator()(const Sequence* a, const ArrivalOrder& b) const { return a->age() < b; }
    bool operator()(const ArrivalOrder& a, const Sequence* b) const { return a < b->age(); }
  };
  enum class Admission : std::uint8_t { started, waits, no_room };

  void plan_lane();
  bool runs_single_token(const Sequence& sequence) const;
  auto under_way() const { return std::ranges::count_if(running_, &Sequence::is_under_way); }
  void check_committed();
  void pin_awaited();
  void plan_single_tokens();
  void plan_chunks();
  void plan_newcomers();
  bool assign_chunk(Sequence& sequence);

  Admission admit(Sequence& sequence);
  bool admit_choice(Sequence& sequence, const Checkpoint& prompt);
  bool follows(Sequence& sequence, std::int32_t resumable);
  bool publish_shared_prefix(const Sequence& sequence, std::int32_t resumable);

  void release_choices(Sequence& first);
  void drop_checkpoint_if_unused(RequestId request);
  void preempt_youngest();
  Sequence& youngest() const;

  MemoryPool* pool_;
  PrefixCache* prefixes_;
  SchedulerLimits limits_;
  std::vector<Sequence*> running_;  ///< oldest first
  std::set<Sequence*, Older> waiting_;
  std::map<RequestId, std::vector<Sequence*>>
      held_;  ///< choices for which the first one runs the prompt
  std::map<RequestId, Checkpoint> checkpoints_;  ///< prompts that further choices start from
  RoomMaker room_;
  StepPlan plan_;
  std::vector<ArrivalOrder> pinned_for_;  ///< waiting sequences when snapshots were pinned,
  std::int64_t pinned_at_ = 0;            ///< and the number of snapshots published by then
  std::vector<Snapshot*> pinned_;
  SchedulerCounts counts_;
  std::int32_t places_kept_ = 0;
  Lane lane_ = Lane::all;            ///< of the plan
  bool others_hold_memory_ = false;  ///< plan()'s
  std::int32_t uncommitted_ = 0;     ///< superblocks without memory when the last plan was made
  bool preempted_ = false;
  bool may_start_ = false;  ///< something changed since a newcomer found no room
};

}  // namespace hyb
