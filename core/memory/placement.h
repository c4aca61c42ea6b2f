#pragma once

#include <array>
#include <cstdint>

#include "core/memory/prefix_tree.h"

namespace hyb {

/// What the chat template lets expect before anything was seen.
enum class PlacementPrior : std::uint8_t {
  unknown,
  answers_stay,   ///< the next prompt begins with this one and its answer: ends of turns
  answers_change  ///< past answers are rendered anew (thinking is dropped): ends of prompts
};

/// Learns which ends are worth a snapshot. Of prompt ends and turn ends, the kind that is used less
/// than 15 % as often as the other is taken for 1 request in 16 only (so it can come back). Branch
/// points and ends of messages are always taken.
class Placement {
 public:
  explicit Placement(PlacementPrior prior = PlacementPrior::unknown);

  /// Whether this request should leave a snapshot there. Deterministic: counts requests, no clock,
  /// no chance.
  bool wants(SnapshotPlace place);

  void created(SnapshotPlace place);
  void used(SnapshotPlace place);  ///< a snapshot of the place was resumed from, for the first time

  /// (2 + used) / (2 + created).
  double use_probability(SnapshotPlace place) const;

 private:
  struct Count {
    std::int64_t created = 0, used = 0, skipped = 0;
  };
  std::array<Count, snapshot_places> counts_;
};

}  // namespace hyb
