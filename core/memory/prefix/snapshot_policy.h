#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefill_cost.h"
#include "core/memory/prefix/prefix_tree.h"

namespace hyb {

/// What a snapshot costs and saves where it stands, in bytes and in seconds of prefill.
class SnapshotValue {
 public:
  /// The layout outlives it.
  SnapshotValue(const MemoryLayout& layout, Precision precision, const PrefillCost& cost);

  void set_cost(const PrefillCost& cost) { cost_ = cost; }

  /// That go when the snapshot goes: its recurrent state, and the pages that no other snapshot
  /// needs. Pages are told by tokens, as if equal prefixes always shared them; of other snapshots
  /// two are asked: one that has the shared tokens, and the nearest above.
  std::size_t bytes(const Neighborhood& neighborhood) const;

  /// Of prefill that a request saves that resumes from it, against what it would resume from
  /// without it.
  double seconds(const Neighborhood& neighborhood) const;

  /// Expected seconds saved per byte; 0 when no byte goes with it.
  double worth(const Neighborhood& neighborhood, double use_probability) const;

  /// Every position of every snapshot can be resumed: one that a deeper one covers is good for
  /// nothing but to stay when that one goes.
  bool resumes_anywhere() const { return resumes_anywhere_; }

 private:
  std::size_t page_bytes(std::size_t group, const Neighborhood& neighborhood) const;

  const MemoryLayout* layout_;
  PrefillCost cost_;
  std::size_t state_bytes_;
  bool resumes_anywhere_;
  std::vector<bool> keeps_everything_;  ///< by group
};

/// What the chat template lets expect before anything was seen.
enum class PlacementPrior : std::uint8_t {
  unknown,
  answers_stay,   ///< the next prompt begins with this one and its answer: ends of turns
  answers_change  ///< past answers are rendered anew (thinking is dropped): ends of prompts
};

/// Learns which snapshots are worth taking and keeping. Of prompt ends and turn ends, the kind that
/// is used less than 15 % as often as the other is taken for 1 request in 16 only (so it can come
/// back); where neither is used, both are taken. Branch points and ends of messages always are.
///
/// Snapshots are told apart by their place and by whether they are continued, that is, were used
/// and have others below them since: the end of a turn is likely to be used once, by the next turn,
/// and not again as long as that one's end is there; the end of a system prompt is used again and
/// again. Old experience fades: a class that has seen 512 snapshots forgets half.
class SnapshotPolicy {
 public:
  explicit SnapshotPolicy(PlacementPrior prior = PlacementPrior::unknown);

  /// Whether this request should leave a snapshot there. Deterministic: counts requests, no clock,
  /// no chance.
  bool wants(SnapshotPlace place);

  void created(SnapshotPlace place);
  /// One of the place was resumed from: it is continued from now on.
  void used(SnapshotPlace place, bool was_continued);

  /// How likely one of the place is to be used (again): (2 + used) / (2 + seen).
  double use_probability(SnapshotPlace place, bool is_continued) const;

 private:
  struct Count {
    std::int32_t seen = 0, used = 0;

    /// Of which the first so many, used, are made up.
    double rate(double made_up) const { return std::min(1.0, (made_up + used) / (made_up + seen)); }
  };
  Count& count(SnapshotPlace place, bool is_continued);
  static void see(Count& count);

  std::array<std::array<Count, 2>, snapshot_places> counts_;  ///< [place][is continued]
  std::array<std::int32_t, snapshot_places> skipped_{};
};

enum class EvictionRule : std::uint8_t { greedy_dual, lru };

/// One heap over the snapshots that are worth evicting; the smallest value goes first. O(log n) for
/// every call.
///
/// greedy_dual: value = level + worth, set when the snapshot is made and when it is used. Worth is
/// the expected seconds of prefill it saves per byte that goes with it. The level rises to the
/// value of each victim, so what is never used is overtaken in the end (Cao & Irani, "Cost-aware
/// WWW proxy caching algorithms", 1997). lru: value = a counter of makings and uses.
class Eviction {
 public:
  explicit Eviction(EvictionRule rule) : rule_(rule) {}

  /// What a snapshot of this worth would have if it were made or used now.
  double value_of(double worth) const;

  void add(Snapshot& snapshot, double worth);
  /// It was used: a new value, in the heap or not before.
  void use(Snapshot& snapshot, double worth);
  /// It will not be used again: it goes before all that are not deprioritized, until it is used.
  void deprioritize(Snapshot& snapshot);
  static bool is_deprioritized(const Snapshot& snapshot) { return snapshot.value == deprioritized; }
  /// It was removed because giving it up would free nothing, and now it would: lru gives it the
  /// value back that it had. A deprioritized one stays so.
  void reinsert(Snapshot& snapshot, double worth);
  /// Out of the heap for any other reason than its value; nothing where it is not in it.
  void remove(Snapshot& snapshot);

  /// The one of least value that nobody waits for; where all are pinned the last of these. Never
  /// `keep`; null: there is no other. O(pinned ones).
  Snapshot* victim(const Snapshot* keep = nullptr) const;
  /// Removes the victim and raises the level to its value.
  void give_up(Snapshot& victim);
  /// One of this worth was not made, because all others are worth more: as if it were made and
  /// given up at once.
  void refuse(double worth);

  /// What a second is worth has changed by `scale`, and what each saves with it: from now on all
  /// values are what they would be had it always been so. O(n) and one call of `worth` for each;
  /// the deprioritized stay so.
  void reweigh(double scale, const std::function<double(const Snapshot&)>& worth);

  std::size_t size() const { return heap_.size(); }
  double level() const { return level_; }

  /// Throws when the heap is no heap: our own bug.
  void audit() const;

 private:
  static constexpr double deprioritized = -1;  ///< others are 0 or more

  /// The key lies in the heap itself: comparing then misses no memory.
  struct Entry {
    double value;
    std::uint64_t added;
    Snapshot* snapshot;

    bool goes_before(const Entry& other) const {
      return value != other.value ? value < other.value : added < other.added;
    }
  };
  /// The victims among the entry and those below it: the least value, and the last pinned.
  struct Victims {
    const Entry* least = nullptr;
    Snapshot* last_pinned = nullptr;
  };
  void look(std::size_t place, const Snapshot* keep, Victims& victims) const;
  void set(Snapshot& snapshot, double worth) const;
  void push(Snapshot& snapshot);
  void put(std::size_t place, const Entry& entry);
  void rise(std::size_t place);
  void sink(std::size_t place);

  EvictionRule rule_;
  double level_ = 0;
  std::uint64_t uses_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace hyb
