#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/memory/prefix_tree.h"

namespace hyb {

/// Seconds to prefill the first `length` tokens: a * length + b * length^2, fitted to measurements
/// of this model on this machine or derived from its FLOPs.
struct PrefillCost {
  double seconds_per_token = 1e-4;
  double seconds_per_token_squared = 0;

  double of(std::int32_t length) const {
    const double l = length;
    return seconds_per_token * l + seconds_per_token_squared * l * l;
  }
};

enum class EvictionRule : std::uint8_t { greedy_dual, lru };

/// One heap over all snapshots; the smallest value goes first. O(log n) for every call.
///
/// greedy_dual: value = level + p(place) * (C(depth) - C(depth of the nearest snapshot above)) /
/// bytes that go with it, set when the snapshot is made and when it is used; the level rises to the
/// value of each victim (Cao & Irani 1997). p(place) = (2 + used) / (2 + created): how often
/// snapshots of its place were used so far. lru: value = a counter of uses.
class Eviction {
 public:
  Eviction(EvictionRule rule, const PrefillCost& cost) : rule_(rule), cost_(cost) {}

  /// `bytes` go when this snapshot goes.
  void add(Snapshot& snapshot, std::size_t bytes, double use_probability);
  void use(Snapshot& snapshot, std::size_t bytes, double use_probability);
  void remove(Snapshot& snapshot);

  /// The one of least value, `keep` excepted; null: none.
  Snapshot* victim(const Snapshot* keep) const;
  /// Removes the victim and raises the level.
  void give_up(Snapshot& victim);

 private:
  EvictionRule rule_;
  PrefillCost cost_;
  double level_ = 0;
  std::vector<Snapshot*> heap_;
};

}  // namespace hyb
