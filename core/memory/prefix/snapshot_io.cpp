#include "core/memory/prefix/snapshot_io.h"

#include "core/base/error.h"

namespace hyb {

void SnapshotIo::set_draft_bytes(std::vector<std::size_t> bytes) {
  require(bytes.size() <= static_cast<std::size_t>(layout().views()),
          "snapshot io: draft bytes of views");
  draft_bytes_ = std::move(bytes);
}

std::size_t SnapshotIo::answer_bytes(ViewId view) const {
  const auto at = static_cast<std::size_t>(index(view));
  const std::size_t drafts = at < draft_bytes_.size() ? draft_bytes_[at] : 0;
  return layout().content_bytes(view) - drafts;
}

void SnapshotIo::flush_orders() {
  if (!pool_->orders().empty()) carry_out_();
  require(pool_->orders().empty(), "snapshot io: orders are carried out when it says so");
}

bool SnapshotIo::has_bytes(const Checkpoint& checkpoint) const {
  if (pool_->orders().empty()) return true;
  UnitSet waiting;
  for (const Order& order : pool_->orders()) {
    if (const auto to = units_of(order, layout()).to) waiting.insert(*to);
  }
  return !pool_->holds(checkpoint, waiting);
}

void SnapshotIo::read(const CheckpointUnit& unit, std::span<std::byte> bytes) const {
  bytes_->read(unit.view, unit.unit, bytes);
}

std::unique_ptr<PendingBytes> SnapshotIo::start_read(const CheckpointUnit& unit) const {
  return bytes_->start_read(unit.view, unit.unit);
}

void SnapshotIo::write(const CheckpointUnit& unit, std::span<const std::byte> bytes) {
  require(pool_->orders().empty(), "snapshot io: settled before it writes");
  bytes_->write(unit.view, unit.unit, bytes);
}

std::unique_ptr<StagedWrite> SnapshotIo::stage_write(ViewId view) const {
  return bytes_->stage_write(layout().unit_bytes(view));
}

std::unique_ptr<PinnedCheckpoint> SnapshotIo::pin(Reservation room) const {
  require(pool_->orders().empty(), "snapshot io: settled before it writes");
  return std::make_unique<PinnedCheckpoint>(*pool_, std::move(room.checkpoint));
}

std::int32_t SnapshotIo::shared_tokens(std::span<const TokenId> key) const {
  return shared(key).tokens;
}

bool SnapshotIo::has(std::span<const TokenId> key) const {
  return cache_->tree().neighborhood(key).here != nullptr;
}

/// The part of the key that is in the tree already.
SharedPrefix SnapshotIo::shared(std::span<const TokenId> key) const {
  const Neighborhood neighborhood = cache_->tree().neighborhood(key);
  if (neighborhood.other == nullptr) return {};
  return {.from = &neighborhood.other->checkpoint, .tokens = neighborhood.shared};
}

std::optional<Reservation> SnapshotIo::room(std::span<const TokenId> key, Precision precision,
                                            const SharedPrefix& other) {
  const SharedPrefix base = shared(key);
  return room_with(key, precision, other.tokens > base.tokens ? other : base);
}

std::optional<Reservation> SnapshotIo::room_with(std::span<const TokenId> key, Precision precision,
                                                 const SharedPrefix& base) {
  if (precision == Precision::int8 && layout().packed.per_superblock == 0) return std::nullopt;
  std::optional<Checkpoint> checkpoint =
      pool_->allocate_empty(static_cast<std::int32_t>(key.size()), precision, base);
  if (!checkpoint) return std::nullopt;
  Reservation room{.checkpoint = *std::move(checkpoint), .is_shared = {}};
  for (const CheckpointUnit& unit : units_of(room.checkpoint, layout())) {
    const auto group = static_cast<std::size_t>(index(unit.view));
    bool is_shared = false;
    if (base.from != nullptr && group < layout().groups.size()) {
      const PageTable& table = base.from->tables()[group];
      const auto page = static_cast<std::size_t>(unit.page);
      is_shared = page < table.size() && index(table[page]) == unit.unit;
    }
    room.is_shared.push_back(is_shared);
  }
  return room;
}

bool SnapshotIo::evict_for(std::span<const TokenId> key) {
  return cache_->evict(cache_->tree().neighborhood(key).other);
}

std::optional<Reservation> SnapshotIo::make_room(std::span<const TokenId> key, Precision precision,
                                                 const SharedPrefix& other) {
  std::optional<Reservation> made = room(key, precision, other);
  while (!made && evict_for(key)) made = room(key, precision, other);
  return made;
}

bool SnapshotIo::adopt(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place,
                       SnapshotSource source) {
  return cache_->insert(key, std::move(checkpoint), place, source);
}

}  // namespace hyb
