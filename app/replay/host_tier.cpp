#include "app/replay/host_tier.h"

#include <optional>
#include <utility>

namespace hyb::app {

void HostTier::keep(std::span<const TokenId> key, const Snapshot& snapshot) {
  const Checkpoint& checkpoint = snapshot.checkpoint;
  key = key.first(static_cast<std::size_t>(checkpoint.length()));
  const Precision precision = checkpoint.precision();
  if (TierEntry* const there = index_.find(key, precision)) return index_.touch(*there);
  index_.admit(index_.add(key, precision, snapshot.place));
}

std::int32_t HostTier::fetch(SnapshotIo& snapshot_io, std::span<const TokenId> prompt,
                             std::int32_t resumable) {
  if (prompt.empty()) return 0;
  const TierHit hit = index_.match(prompt, static_cast<std::int32_t>(prompt.size()) - 1);
  if (hit.length <= resumable) return 0;
  const auto key = prompt.first(static_cast<std::size_t>(hit.length));
  if (!index_.worth_reading(hit, snapshot_io.shared_tokens(key), resumable)) return 0;
  if (hit.entry != nullptr) index_.touch(*hit.entry);
  std::optional<Reservation> room = snapshot_io.make_room(key, hit.precision);
  if (!room) return 0;
  const bool is_new =
      snapshot_io.adopt(key, std::move(room->checkpoint), hit.place, SnapshotSource::host);
  return is_new ? hit.length : 0;
}

}  // namespace hyb::app
