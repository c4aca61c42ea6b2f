#include "core/memory/placement.h"

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr double seldom = 0.15;            // of the other kind's rate
constexpr std::int32_t seldom_turns = 16;  // 1 request in so many
constexpr std::int32_t seen_max = 512;
constexpr std::int32_t prior_seen = 14;  // just enough unused ones for a kind to be seldom

}  // namespace

Placement::Placement(PlacementPrior prior) {
  if (prior == PlacementPrior::unknown) return;
  const bool stay = prior == PlacementPrior::answers_stay;
  count(stay ? SnapshotPlace::prompt_end : SnapshotPlace::turn_end, false) = {prior_seen, 0};
  count(stay ? SnapshotPlace::turn_end : SnapshotPlace::prompt_end, false) = {1, 1};
}

Placement::Count& Placement::count(SnapshotPlace place, bool is_continued) {
  return counts_[static_cast<std::size_t>(place)][is_continued ? 1 : 0];
}

void Placement::see(Count& count) {
  if (++count.seen <= seen_max) return;
  count.seen /= 2;
  count.used /= 2;
}

bool Placement::wants(SnapshotPlace place) {
  if (place != SnapshotPlace::prompt_end && place != SnapshotPlace::turn_end) return true;
  const SnapshotPlace other =
      place == SnapshotPlace::prompt_end ? SnapshotPlace::turn_end : SnapshotPlace::prompt_end;
  const Count& others = count(other, false);
  if (others.used == 0) return true;
  if (count(place, false).rate(0.5) >= seldom * others.rate(0)) return true;
  std::int32_t& skipped = skipped_[static_cast<std::size_t>(place)];
  if (++skipped < seldom_turns) return false;
  skipped = 0;
  return true;
}

void Placement::created(SnapshotPlace place) { see(count(place, false)); }

void Placement::used(SnapshotPlace place, bool was_continued) {
  ++count(place, was_continued).used;
  see(count(place, true));  // from here on it waits for its next use
}

double Placement::use_probability(SnapshotPlace place, bool is_continued) const {
  return counts_[static_cast<std::size_t>(place)][is_continued ? 1 : 0].rate(2);
}

}  // namespace hyb
