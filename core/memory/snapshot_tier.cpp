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

/// Room for a state and the pages that come before it.
std::size_t staging_bytes_for(const MemoryLayout& layout, std::size_t wanted) {
  std::size_t largest = 0;
  for (std::int32_t view = 0; view < layout.views(); ++view) {
    largest = std::max(largest, layout.unit_bytes(ViewId{view}));
  }
  return std::max(wanted, largest + largest / 2);
}

}  // namespace

SnapshotTier::SnapshotTier(std::string name, const SnapshotCarrier& carrier,
                           std::unique_ptr<Storage> storage, const TierOptions& options)
    : name_(std::move(name)),
      carrier_(carrier),
      options_(options),
      extents_(sectors_in(options.budget_bytes)),
      index_(carrier.layout()),
      queue_(std::make_unique<TransferQueue>(
          std::move(storage), staging_bytes_for(carrier.layout(), options.staging_bytes),
          options.worker)) {}

std::uint32_t SnapshotTier::sectors_of(const TierUnit& unit) const {
  const std::size_t bytes = carrier_.layout().unit_bytes(unit.view);
  return static_cast<std::uint32_t>((bytes + sector_bytes - 1) / sector_bytes);
}

/// Whether it is a page of the first `tokens` tokens.
bool SnapshotTier::is_within(const TierUnit& unit, std::int32_t tokens) const {
  const MemoryLayout& layout = carrier_.layout();
  const bool is_page = index(unit.view) < static_cast<std::int32_t>(layout.groups.size());
  return is_page && (unit.page + 1) * layout.page_tokens <= tokens;
}

/// Of all units but the pages of the first `tokens` tokens.
std::uint64_t SnapshotTier::bytes_of(std::span<const TierUnit> units, std::int32_t tokens) const {
  std::uint64_t bytes = 0;
  for (const TierUnit& unit : units) {
    if (!is_within(unit, tokens)) bytes += carrier_.layout().unit_bytes(unit.view);
  }
  return bytes;
}

void SnapshotTier::switch_off(std::string_view why) {
  log::warning(name_ + ": off from here on: " + std::string(why));
  fetches_.clear();
  index_.reset();
  queue_.reset();
}

void SnapshotTier::notice_failure() {
  if (!is_on()) return;
  const std::string why = queue_->failure();
  if (!why.empty()) switch_off(why);
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

void SnapshotTier::store(const TierUnit& unit, const CheckpointUnit& source) {
  const std::size_t bytes = carrier_.layout().unit_bytes(unit.view);
  queue_->write(unit.stored->extents, bytes, [&](std::span<std::byte> buffer) {
    carrier_.read(source, buffer);
    unit.stored->sum = checksum(buffer);
  });
  stats_.bytes_written += bytes;
}

void SnapshotTier::spill(std::span<const TokenId> key, const Snapshot& snapshot) {
  notice_failure();
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
  try {
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (is_new[i]) store(units[i], sources[i]);
    }
  } catch (...) {
    remove(entry);  // a unit of it has no bytes
    throw;
  }
  ++stats_.spilled;
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
  for (const TierFetch& fetch : fetches_) {
    require(fetch.units_come <= fetch.units.size(), "tier: no more comes than was asked for");
  }
}

}  // namespace hyb
