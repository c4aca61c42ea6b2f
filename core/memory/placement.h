#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/memory/prefix_node.h"

namespace hyb {

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
class Placement {
 public:
  explicit Placement(PlacementPrior prior = PlacementPrior::unknown);

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

}  // namespace hyb
