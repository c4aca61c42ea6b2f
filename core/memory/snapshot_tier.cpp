#include "core/memory/snapshot_tier.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/checksum.h"

namespace hyb {
namespace {

std::uint32_t sectors_in(std::uint64_t budget_bytes) {
  constexpr std::uint64_t sectors_max = 0xFFFFFFFF;
  return static_cast<std::uint32_t>(std::min(budget_bytes / sector_bytes, sectors_max));
}

/// Hands the pieces of `bytes` with their places in the storage to `move`.
template <typename Bytes, typename Move>
void for_each_piece(const StoredUnit& unit, Bytes bytes, const Move& move) {
  for (const Extent& extent : unit.extents) {
    const std::size_t count = std::min(bytes.size(), extent.count * sector_bytes);
    move(std::uint64_t{extent.first} * sector_bytes, bytes.first(count));
    bytes = bytes.subspan(count);
  }
}

}  // namespace

SnapshotTier::SnapshotTier(std::string name, const SnapshotCarrier& carrier,
                           std::unique_ptr<Storage> storage, const TierOptions& options)
    : name_(std::move(name)),
      carrier_(carrier),
      storage_(std::move(storage)),
      options_(options),
      extents_(sectors_in(options.budget_bytes)),
      index_(carrier.layout()) {}

std::uint32_t SnapshotTier::sectors_of(const TierUnit& unit) const {
  const std::size_t bytes = carrier_.layout().unit_bytes(unit.view);
  return static_cast<std::uint32_t>((bytes + sector_bytes - 1) / sector_bytes);
}

/// Of all units but the pages of the first `tokens` tokens.
std::uint64_t SnapshotTier::bytes_of(std::span<const TierUnit> units, std::int32_t tokens) const {
  const MemoryLayout& layout = carrier_.layout();
  std::uint64_t bytes = 0;
  for (const TierUnit& unit : units) {
    const bool is_page = index(unit.view) < static_cast<std::int32_t>(layout.groups.size());
    if (is_page && (unit.page + 1) * layout.page_tokens <= tokens) continue;
    bytes += layout.unit_bytes(unit.view);
  }
  return bytes;
}

std::span<std::byte> SnapshotTier::buffer(ViewId view) {
  buffer_.resize(std::max(buffer_.size(), carrier_.layout().unit_bytes(view)));
  return std::span(buffer_).first(carrier_.layout().unit_bytes(view));
}

void SnapshotTier::switch_off(std::string_view why) {
  log::warning(name_ + ": off from here on: " + std::string(why));
  index_.reset();
  storage_.reset();
}

void SnapshotTier::remove(TierEntry& entry) {
  index_->remove(entry, [this](StoredUnit& unit) { extents_.give_back(unit.extents); });
}

/// A snapshot is worth the seconds that it saves over the next one above it, per byte.
void SnapshotTier::rank(TierEntry& entry) {
  const TierEntry* const above = index_->above(entry);
  std::uint64_t bytes = 1;
  for (const TierUnit& unit : index_->units(entry)) {
    if (unit.stored->users == 1) bytes += sectors_of(unit) * sector_bytes;
  }
  const double seconds =
      options_.cost.of(entry.length) - options_.cost.of(above ? above->length : 0);
  entry.worth = seconds / static_cast<double>(bytes);
  index_->rank(entry, level_ + entry.worth);
}

/// Takes sectors for the units of a new entry. Less valuable ones give way; false: there are not
/// enough of them.
bool SnapshotTier::make_room(TierEntry& entry) {
  const std::vector<TierUnit> units = index_->units(entry);
  for (;;) {
    std::uint64_t needed = 0;
    for (const TierUnit& unit : units) {
      if (unit.stored->extents.empty()) needed += sectors_of(unit);
    }
    if (needed <= extents_.free() && index_->bytes() <= options_.index_bytes_max) break;
    TierEntry* const victim = index_->first(&entry);
    if (victim == nullptr || victim->rank.first > entry.rank.first) return false;
    level_ = std::max(level_, victim->rank.first);
    remove(*victim);
    ++stats_.removed;
  }
  for (const TierUnit& unit : units) {
    if (unit.stored->extents.empty()) unit.stored->extents = *extents_.take(sectors_of(unit));
  }
  return true;
}

bool SnapshotTier::store(const TierUnit& unit, std::span<const std::byte> bytes) {
  unit.stored->sum = checksum(bytes);
  try {
    for_each_piece(*unit.stored, bytes,
                   [this](std::uint64_t offset, auto piece) { storage_->write(offset, piece); });
  } catch (const Error& error) {
    switch_off(error.what());
    return false;
  }
  stats_.bytes_written += bytes.size();
  return true;
}

void SnapshotTier::spill(std::span<const TokenId> key, const Snapshot& snapshot) {
  if (!is_on()) return;
  const Checkpoint& checkpoint = snapshot.checkpoint;
  key = key.first(static_cast<std::size_t>(checkpoint.length()));
  const bool is_packed = checkpoint.packed() != no_packed;
  const Precision precision = is_packed ? Precision::int8 : Precision::exact;
  TierEntry* const there = index_->find(key, precision);
  if (there != nullptr && TierIndex::is_whole(index_->units(*there))) {
    index_->rank(*there, level_ + there->worth);
    ++stats_.held;
    return;
  }
  // Evicted before the step that makes its bytes: seldom, and no loss that the books should fear.
  if (!carrier_.has_bytes(checkpoint)) {
    ++stats_.declined;
    return;
  }
  // One that lost a unit to damage gets it back.
  TierEntry& entry = there ? *there : index_->add(key, precision, snapshot.place);
  const std::vector<TierUnit> units = index_->units(entry);
  std::vector<bool> is_new;
  for (const TierUnit& unit : units) is_new.push_back(unit.stored->extents.empty());
  rank(entry);
  const bool is_slow = options_.cost.of(entry.length) * options_.bytes_per_second <
                       static_cast<double>(bytes_of(units, 0));
  if (is_slow || !make_room(entry)) {
    remove(entry);
    ++stats_.declined;
    return;
  }
  const std::vector<CheckpointUnit> sources = units_of(checkpoint, carrier_.layout());
  require(sources.size() == units.size(), "tier: a checkpoint has the units of its kinds");
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!is_new[i]) continue;
    const auto bytes = buffer(units[i].view);
    carrier_.read(sources[i], bytes);
    if (!store(units[i], bytes)) return;
  }
  ++stats_.spilled;
}

SnapshotTier::Loaded SnapshotTier::load(const TierUnit& unit, std::span<std::byte> bytes) {
  try {
    for_each_piece(*unit.stored, bytes,
                   [this](std::uint64_t offset, auto piece) { storage_->read(offset, piece); });
  } catch (const Error& error) {
    switch_off(error.what());
    return Loaded::failed;
  }
  stats_.bytes_read += bytes.size();
  if (checksum(bytes) == unit.stored->sum) return Loaded::whole;
  // No snapshot with this unit is whole from here on, so none is tried again.
  ++stats_.damaged;
  extents_.give_back(unit.stored->extents);
  unit.stored->extents.clear();
  return Loaded::damaged;
}

SnapshotTier::Loaded SnapshotTier::fill(const TierHit& hit, const SnapshotRoom& room) {
  const std::vector<CheckpointUnit> targets = units_of(room.checkpoint, carrier_.layout());
  require(targets.size() == hit.units.size(), "tier: a checkpoint has the units of its kinds");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (room.is_shared[i]) continue;
    const auto bytes = buffer(targets[i].view);
    const Loaded loaded = load(hit.units[i], bytes);
    if (loaded != Loaded::whole) return loaded;
    carrier_.write(targets[i], bytes);
  }
  return Loaded::whole;
}

std::int32_t SnapshotTier::fetch(std::span<const TokenId> prompt, std::int32_t resumable) {
  const auto limit = static_cast<std::int32_t>(prompt.size()) - 1;
  while (is_on()) {
    // Looked up anew every time: what is evicted below is spilled, and what it displaces is gone.
    const TierHit hit = index_->match(prompt, limit);
    if (hit.length <= resumable) return 0;
    const auto key = prompt.first(static_cast<std::size_t>(hit.length));
    const double seconds = options_.cost.of(hit.length) - options_.cost.of(resumable);
    const std::uint64_t bytes = bytes_of(hit.units, carrier_.shared_tokens(key));
    if (seconds * options_.bytes_per_second < static_cast<double>(bytes)) return 0;
    std::optional<SnapshotRoom> room = carrier_.room(key, hit.precision);
    if (!room) {
      if (!carrier_.evict_for(key)) return 0;
      continue;
    }
    carrier_.settle();
    const Loaded loaded = fill(hit, *room);
    if (loaded == Loaded::failed) return 0;
    if (loaded == Loaded::damaged) continue;
    if (!carrier_.adopt(key, std::move(room->checkpoint), hit.place)) return 0;
    if (hit.entry != nullptr) index_->rank(*hit.entry, level_ + hit.entry->worth);
    ++stats_.fetched;
    stats_.tokens_fetched += hit.length;
    return hit.length;
  }
  return 0;
}

TierStats SnapshotTier::stats() const {
  TierStats stats = stats_;
  if (is_on()) {
    stats.bytes_used = std::uint64_t{extents_.total() - extents_.free()} * sector_bytes;
  }
  return stats;
}

void SnapshotTier::audit() const {
  if (!is_on()) return;
  index_->audit();
}

}  // namespace hyb
