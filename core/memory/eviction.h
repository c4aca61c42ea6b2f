#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/memory/prefix_node.h"

namespace hyb {

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
  /// It will not be used again: it goes before all that are not devalued, until it is used.
  void devalue(Snapshot& snapshot);
  static bool is_devalued(const Snapshot& snapshot) { return snapshot.value == devalued; }
  /// It was removed because giving it up would free nothing, and now it would: lru gives it the
  /// value back that it had. A devalued one stays so.
  void wake(Snapshot& snapshot, double worth);
  /// Out of the heap for any other reason than its value; nothing where it is not in it.
  void remove(Snapshot& snapshot);

  /// The one of least value that nobody waits for; where all are awaited the last of these. Never
  /// `keep`; null: there is no other. O(awaited ones).
  Snapshot* victim(const Snapshot* keep = nullptr) const;
  /// Removes the victim and raises the level to its value.
  void give_up(Snapshot& victim);
  /// One of this worth was not made, because all others are worth more: as if it were made and
  /// given up at once.
  void refuse(double worth);

  /// What a second is worth has changed by `scale`, and what each saves with it: from now on all
  /// values are what they would be had it always been so. O(n) and one call of `worth` for each;
  /// the devalued stay so.
  void reweigh(double scale, const std::function<double(const Snapshot&)>& worth);

  std::size_t size() const { return heap_.size(); }
  double level() const { return level_; }

  /// Throws when the heap is no heap: our own bug.
  void audit() const;

 private:
  static constexpr double devalued = -1;  ///< others are 0 or more

  /// The key lies in the heap itself: comparing then misses no memory.
  struct Entry {
    double value;
    std::uint64_t added;
    Snapshot* snapshot;

    bool goes_before(const Entry& other) const {
      return value != other.value ? value < other.value : added < other.added;
    }
  };
  /// The victims among the entry and those below it: the least value, and the last awaited.
  struct Victims {
    const Entry* least = nullptr;
    Snapshot* last_awaited = nullptr;
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
