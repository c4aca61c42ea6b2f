#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/handover_stats.h"
#include "core/engine/sequence.h"
#include "core/engine/side.h"
#include "core/memory/link/unit_link.h"
#include "core/memory/prefix/snapshot_io.h"

namespace hyb {

/// Sequences between two sides that share no memory: prompts run on one, answers on the other.
///
/// A sequence that has drawn its first token is handed over: the side of answers reserves pages and
/// a slot for it, gets what it lacks of them, and goes on with it; then its memory on the side of
/// prompts is free. Full pages of a long prompt are copied while the rest of it runs. A sequence
/// that lost its memory begins again as a prompt. A prompt begins on the side that has the longer
/// prefix: either what the side of prompts lacks of it is copied there, or the prompt runs on the
/// side of answers, where that is faster.
///
/// Copies under way take no memory from what runs: room on either side is given up before a
/// sequence is preempted for lack of memory.
class Handovers {
 public:
  /// Sides and link outlive this. `bytes_per_second`: its speed, to compare with running a prompt.
  Handovers(Side& prompts, Side& answers, UnitLink& link, double bytes_per_second,
            std::function<std::chrono::steady_clock::time_point()> now);
  Handovers(const Handovers&) = delete;
  Handovers& operator=(const Handovers&) = delete;

  /// Between steps of the side of answers: goes on with what takes no waiting. With
  /// `prompts_idle` the other side has no step under way, either, and copies of what it ran
  /// begin. Throws what a copy failed with, what carrying out orders throws, and Error(memory)
  /// where the device lacks room for the oldest sequence: what was on its way then begins again
  /// with the next call.
  void advance(bool prompts_idle);

  bool is_copying() const;
  /// Some copy has ended, so that advance() has something to do.
  bool has_news(bool prompts_idle) const;
  /// While something is copied: until some of it is there.
  void wait();

  /// The sequence has ended.
  void leave(const Sequence& sequence);

  /// Before memory of a side is released after a failed step: what was on its way to it, and
  /// copies of its snapshots, are dropped.
  void lose_prompts();
  void lose_answers();

  /// On their way: on neither side. Their memory of prompts is held until that of answers has it.
  std::int32_t sequences() const;
  std::size_t waiting() const;  ///< sequences that wait for a snapshot of the other side
  const HandoverStats& stats() const { return stats_; }

  /// All that this holds of a side's pool, for audits.
  std::vector<const Checkpoint*> held_of_prompts() const;
  std::vector<const Checkpoint*> held_of_answers() const;

 private:
  using Copies = std::unique_ptr<UnitCopies>;

  /// Pages on their way. Their sequence may lose them meanwhile.
  struct Batch {
    std::unique_ptr<PinnedCheckpoint> source;  ///< null: the hand-over's
    Copies copies;                             ///< destroyed first
  };
  struct Handover {
    Sequence* sequence;
    std::int64_t releases;  ///< of the sequence, when this began
    std::int32_t length;    ///< tokens that are handed over
    std::chrono::steady_clock::time_point ready{};
    std::unique_ptr<PinnedCheckpoint> source{};  ///< null: the prompt still runs
    bool is_whole = false;                       ///< the source has its bytes
    std::unique_ptr<PinnedCheckpoint> room{};    ///< null: none is reserved yet
    std::vector<CheckpointUnit> rest{};          ///< of the room, what is yet to be copied
    std::vector<Batch> batches{};
  };
  /// A snapshot of the side of answers, on its way to the other one.
  struct Fetch {
    std::vector<TokenId> key;
    SnapshotPlace place;
    std::vector<Sequence*> waiting;
    std::unique_ptr<PinnedCheckpoint> source, room;
    Copies copies;
  };

  std::span<const TokenId> key_of(const Handover& handover) const;
  bool shares_pages() const;
  std::int32_t rooms() const;
  void keep_places();
  void finish_copies();
  void collect();
  void collect(Sequence& sequence);
  void settle_sources();
  void place_waiting(bool prompts_idle);
  void place(Sequence& sequence);
  void move_to_answers(Sequence& sequence);
  void fetch(Sequence& sequence, const Lookup& lookup);
  void deliver_fetches();
  void end_waits(const Fetch& fetch);
  void begin_early();
  void reserve_all();
  bool reserve(Handover& handover);
  std::optional<Reservation> take_room(const Handover& handover, bool is_alone);
  bool drop_youngest_early_room();
  void send(Handover& handover);
  std::vector<UnitMove> take_moves(Handover& handover, const Checkpoint& source) const;
  void complete();
  void complete(Handover& handover);
  void give_room_back(Handover& handover);
  bool reclaim_answers();
  bool reclaim_prompts();

  Side *prompts_, *answers_;
  UnitLink* link_;
  double bytes_per_second_;
  std::function<std::chrono::steady_clock::time_point()> now_;
  std::vector<std::unique_ptr<Handover>> handovers_;  ///< the oldest sequence first
  std::vector<std::unique_ptr<Fetch>> fetches_;       ///< in the order of the requests
  HandoverStats stats_;
};

}  // namespace hyb
