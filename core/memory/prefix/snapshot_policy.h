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

/// Computes what a snapshot costs and saves at its position, in bytes and in seconds of prefill.
class SnapshotValue {
 public:
  /// The layout outlives it.
  SnapshotValue(const MemoryLayout& layout, Precision precision, const PrefillCost& cost);

  void set_cost(const PrefillCost& cost) { cost_ = cost; }

  /// Freed with the snapshot: its recurrent state, and the pages that no other snapshot needs.
  /// Pages are identified by tokens, as if equal prefixes always shared them; two other snapshots
  /// are considered: one that has the shared tokens, and the nearest above.
  std::size_t bytes(const Neighborhood& neighborhood) const;

  /// Prefill that a request saves by resuming from it, compared with what it would resume from
  /// without it.
  double seconds(const Neighborhood& neighborhood) const;

  /// Expected seconds saved per byte; 0 when it frees no byte.
  double worth(const Neighborhood& neighborhood, double use_probability) const;

  /// Every position of every snapshot can be resumed: one that a deeper one covers is of use only
  /// after that one is evicted.
  bool resumes_anywhere() const { return resumes_anywhere_; }

 private:
  std::size_t page_bytes(std::size_t group, const Neighborhood& neighborhood) const;

  const MemoryLayout* layout_;
  PrefillCost cost_;
  std::size_t state_bytes_;
  bool resumes_anywhere_;
  std::vector<bool> keeps_everything_;  ///< by group
};

/// Says what the chat template suggests before anything was seen.
enum class PlacementPrior : std::uint8_t {
  unknown,
  answers_stay,   ///< the next prompt starts with this one and its answer: ends of turns
  answers_change  ///< past answers are rendered differently (thinking is dropped): ends of prompts
};

/// Learns which snapshots are worth taking and keeping. Of prompt ends and turn ends, the place
/// that is used less than 15 % as often as the other is taken for 1 request in 16 only (so that it
/// can recover); where neither is used, both are taken. Branch points and ends of messages are
/// always taken.
///
/// Snapshots are classified by their place and by whether they are continued, that is, were used
/// and have had others below them since: the end of a turn is likely to be used once, by the next
/// turn, and not again while that one's end exists; the end of a system prompt is used again and
/// again. Old counts fade: a class that has seen 512 snapshots halves them.
class SnapshotPolicy {
 public:
  explicit SnapshotPolicy(PlacementPrior prior = PlacementPrior::unknown);

  /// Returns whether this request should leave a snapshot there. Deterministic: counts requests,
  /// uses no clock and no randomness.
  bool wants(SnapshotPlace place);

  void created(SnapshotPlace place);
  /// A snapshot of the place was resumed from: it is continued from now on.
  void used(SnapshotPlace place, bool was_continued);

  /// The probability that a snapshot of the place is used (again): (2 + used) / (2 + seen).
  double use_probability(SnapshotPlace place, bool is_continued) const;

 private:
  struct Count {
    std::int32_t seen = 0, used = 0;

    /// Uses `made_up` used observations as a prior.
    double rate(double made_up) const { return std::min(1.0, (made_up + used) / (made_up + seen)); }
  };
  Count& count(SnapshotPlace place, bool is_continued);
  static void remember(Count& count);

  std::array<std::array<Count, 2>, snapshot_places> counts_;  ///< [place][is continued]
  std::array<std::int32_t, snapshot_places> skipped_{};
};

enum class EvictionRule : std::uint8_t { greedy_dual, lru };

/// One heap over the snapshots that may be evicted; the smallest value is evicted first. O(log n)
/// for every call.
///
/// greedy_dual: value = level + worth, set when the snapshot is made and when it is used. Worth is
/// the expected seconds of prefill saved per byte freed. The level rises to the value of each
/// victim, so what is never used is overtaken in the end (Cao & Irani, "Cost-aware WWW proxy
/// caching algorithms", 1997). lru: value = a counter of insertions and uses.
class Eviction {
 public:
  explicit Eviction(EvictionRule rule) : rule_(rule) {}

  /// The value of a snapshot of this worth if it were made or used now.
  double value_of(double worth) const;

  void add(Snapshot& snapshot, double worth);
  /// It was used: a new value, whether it was in the heap or not.
  void use(Snapshot& snapshot, double worth);
  /// It is not expected to be used again: it is evicted before all that are not deprioritized,
  /// until it is used.
  void deprioritize(Snapshot& snapshot);
  static bool is_deprioritized(const Snapshot& snapshot) { return snapshot.value == deprioritized; }
  /// It was removed because evicting it would have freed nothing, and now it would: lru restores
  /// its value. A deprioritized one stays so.
  void reinsert(Snapshot& snapshot, double worth);
  /// Removes it from the heap for a reason other than its value; does nothing where it is not in
  /// it.
  void remove(Snapshot& snapshot);

  /// The one of least value that is not pinned; where all are pinned the last of these. Never
  /// `keep`; null: there is no other. O(pinned ones).
  Snapshot* victim(const Snapshot* keep = nullptr) const;
  /// Removes the victim and raises the level to its value.
  void give_up(Snapshot& victim);
  /// A snapshot of this worth was not made, because all others are worth more: as if it were made
  /// and evicted at once.
  void refuse(double worth);

  /// The cost of prefill has changed by `scale`, and with it the worth of each snapshot: all values
  /// become what they would be had it always been so. O(n) and one call of `worth` for each;
  /// deprioritized ones stay so.
  void reweigh(double scale, const std::function<double(const Snapshot&)>& worth);

  std::size_t size() const { return heap_.size(); }
  double level() const { return level_; }

  /// Throws when the heap is no heap: our own bug.
  void audit() const;

 private:
  static constexpr double deprioritized = -1;  ///< others are 0 or more

  /// The key is in the heap itself, so comparing causes no cache miss.
  struct Entry {
    double value;
    std::uint64_t added;
    Snapshot* snapshot;

    bool is_evicted_before(const Entry& other) const {
      return value != other.value ? value < other.value : added < other.added;
    }
  };
  /// Candidates among an entry and those below it: the least value, and the last pinned.
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
