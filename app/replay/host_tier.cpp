#include "app/replay/host_tier.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hyb::app {
namespace {

constexpr double bytes_per_second = 1e10;  // as the engine takes for its host tier

const Extent somewhere = {.first = 0, .count = 1};  // what the index takes for stored

}  // namespace

std::int64_t HostTier::bytes_of(std::span<StoredUnit* const> units) const {
  std::int64_t bytes = 0;
  for (const StoredUnit* const unit : units) {
    bytes += static_cast<std::int64_t>(layout_.unit_bytes(unit->view));
  }
  return bytes;
}

void HostTier::remove(TierEntry& entry) {
  index_.remove(entry, [this](StoredUnit& unit) {
    bytes_ -= static_cast<std::int64_t>(layout_.unit_bytes(unit.view));
  });
}

void HostTier::rank(TierEntry& entry) {
  const TierEntry* const above = index_.above(entry);
  std::vector<StoredUnit*> own = index_.units(entry);
  std::erase_if(own, [](const StoredUnit* unit) { return unit->users > 1; });
  entry.worth = (cost_.of(entry.length) - cost_.of(above ? above->length : 0)) /
                static_cast<double>(bytes_of(own) + 1);
  index_.rank(entry, level_ + entry.worth);
}

bool HostTier::make_room(TierEntry& entry) {
  for (;;) {
    std::vector<StoredUnit*> missing = index_.units(entry);
    std::erase_if(missing, [](const StoredUnit* unit) { return !unit->extents.empty(); });
    const std::int64_t needed = bytes_of(missing);
    if (bytes_ + needed <= budget_bytes_) {
      for (StoredUnit* const unit : missing) unit->extents = {somewhere};
      bytes_ += needed;
      return true;
    }
    TierEntry* const victim = index_.first(&entry);
    if (victim == nullptr || victim->rank.first > entry.rank.first) return false;
    level_ = std::max(level_, victim->rank.first);
    remove(*victim);
  }
}

void HostTier::keep(std::span<const TokenId> key, const Snapshot& snapshot) {
  const Checkpoint& checkpoint = snapshot.checkpoint;
  key = key.first(static_cast<std::size_t>(checkpoint.length()));
  const Precision precision = checkpoint.packed() != no_packed ? Precision::int8 : Precision::exact;
  if (TierEntry* const there = index_.find(key, precision)) {
    index_.rank(*there, level_ + there->worth);
    return;
  }
  TierEntry& entry = index_.add(key, precision, snapshot.place);
  rank(entry);
  const auto bytes = static_cast<double>(bytes_of(index_.units(entry)));
  if (cost_.of(entry.length) * bytes_per_second < bytes || !make_room(entry)) remove(entry);
}

std::int32_t HostTier::fetch(SnapshotIo& snapshot_io, std::span<const TokenId> prompt,
                             std::int32_t resumable) {
  if (prompt.empty()) return 0;
  const TierHit hit = index_.match(prompt, static_cast<std::int32_t>(prompt.size()) - 1);
  if (hit.length <= resumable) return 0;
  const auto key = prompt.first(static_cast<std::size_t>(hit.length));
  const std::int32_t shared = snapshot_io.shared_tokens(key);
  std::vector<StoredUnit*> needed = hit.units;
  std::erase_if(needed, [&](const StoredUnit* unit) {
    const bool is_page = index(unit->view) < static_cast<std::int32_t>(layout_.groups.size());
    return is_page && (unit->page + 1) * layout_.page_tokens <= shared;
  });
  const double seconds = cost_.of(hit.length) - cost_.of(resumable);
  if (seconds * bytes_per_second < static_cast<double>(bytes_of(needed))) return 0;
  const std::int32_t length = hit.length;
  const Precision precision = hit.precision;
  const SnapshotPlace place = hit.place;
  TierEntry* const entry = hit.entry;
  if (entry != nullptr) index_.rank(*entry, level_ + entry->worth);
  std::optional<Reservation> room = snapshot_io.room(key, precision);
  while (!room) {
    if (!snapshot_io.evict_for(key)) return 0;
    room = snapshot_io.room(key, precision);
  }
  const bool is_new =
      snapshot_io.adopt(key, std::move(room->checkpoint), place, SnapshotSource::host);
  return is_new ? length : 0;
}

}  // namespace hyb::app
