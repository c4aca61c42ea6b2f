#include "core/memory/pool/memory_pool.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/error.h"

namespace hyb {

MemoryPool::MemoryPool(MemoryLayout layout, bool orders_fixed_owners)
    : superblocks_(std::move(layout)), orders_fixed_owners_(orders_fixed_owners) {
  for (const PageGroup& group : this->layout().groups) {
    require(group.kind != nullptr, "memory: a group of pages has a kind");
  }
  limit_compaction(this->layout().superblock_bytes);
  if (orders_fixed_owners_) resync_owners();
}

std::optional<Memory> MemoryPool::start() {
  Memory memory(*this);
  if (layout().has_slots()) {
    const std::optional<SlotId> slot = take_unit<SlotId>(layout().slot_view());
    if (!slot) return std::nullopt;
    memory.write_slot_ = *slot;
  }
  return memory;
}

std::optional<Memory> MemoryPool::resume(const Checkpoint& checkpoint,
                                         std::optional<std::int32_t> tokens) {
  const std::int32_t length = tokens.value_or(checkpoint.length_);
  require(checkpoint.pool_ == this, "memory: a checkpoint is resumed in its own pool");
  require(length > 0 && checkpoint.resumable_length(length) == length,
          "memory: a checkpoint is resumed where it can be");
  std::optional<Memory> memory = start();
  if (!memory) return std::nullopt;
  const auto pages = static_cast<std::size_t>(pages_for(layout(), length));
  const bool has_partial = !layout().groups.empty() && length % layout().page_tokens != 0;
  const std::size_t full = has_partial ? pages - 1 : pages;
  for (std::int32_t group = 0; group < layout().group_count(); ++group) {
    const PageTable& from = checkpoint.tables_[static_cast<std::size_t>(group)];
    PageTable& table = memory->tables_[static_cast<std::size_t>(group)];
    table.assign(pages, no_page);
    for (std::size_t i = 0; i < full; ++i) {
      if (from[i] == no_page) continue;
      const bool wanted = length == checkpoint.length_ ||
                          layout().holds_page(group, static_cast<std::int32_t>(i), length);
      if (!wanted) continue;
      share(ViewId{group}, index(from[i]));
      table[i] = from[i];
    }
    if (!has_partial || !layout().holds_page(group, static_cast<std::int32_t>(full), length))
      continue;
    const std::optional<PageId> copy = take_page(group, table);
    if (!copy) return std::nullopt;
    table[full] = *copy;
  }
  // Ordered only now that nothing can fail any more; and taking pages may have moved others.
  for (std::int32_t group = 0; group < layout().group_count(); ++group) {
    const PageTable& from = checkpoint.tables_[static_cast<std::size_t>(group)];
    const PageTable& table = memory->tables_[static_cast<std::size_t>(group)];
    if (has_partial && table[full] != no_page) {
      orders_.push_back(
          UnitCopy{.view = ViewId{group}, .from = index(from[full]), .to = index(table[full])});
    }
  }
  memory->length_ = length;
  if (checkpoint.packed_ != no_packed) {
    orders_.push_back(UnpackSlot{.from = checkpoint.packed_, .to = memory->write_slot_});
    memory->read_slot_ = memory->write_slot_;
    return memory;
  }
  share(layout().slot_view(), index(checkpoint.slot_));
  memory->read_slot_ = checkpoint.slot_;
  return memory;
}

std::optional<Checkpoint> MemoryPool::allocate_empty(std::int32_t length, Precision precision,
                                                     const SharedPrefix& prefix) {
  require(length > 0, "memory: a checkpoint has a length");
  require(prefix.from == nullptr || prefix.tokens <= prefix.from->length_,
          "memory: no more tokens are shared than there are");
  const std::int32_t pages_shared = prefix.from == nullptr || layout().group_count() == 0
                                        ? 0
                                        : std::min(prefix.tokens, length) / layout().page_tokens;
  Checkpoint checkpoint(*this, length);
  for (std::int32_t group = 0; group < layout().group_count(); ++group) {
    PageTable& table = checkpoint.tables_[static_cast<std::size_t>(group)];
    for (std::int32_t page = 0; page < pages_for(layout(), length); ++page) {
      std::optional<PageId> taken = no_page;
      if (layout().holds_page(group, page, length)) {
        const auto at = static_cast<std::size_t>(page);
        if (page < pages_shared) taken = prefix.from->tables_[static_cast<std::size_t>(group)][at];
        if (taken != no_page) {
          share(ViewId{group}, index(*taken));
        } else {
          taken = take_page(group, table);
        }
      }
      if (!taken) return std::nullopt;
      table.push_back(*taken);
    }
  }
  if (!layout().has_slots()) return checkpoint;
  if (precision == Precision::int8) {
    require(layout().packed.per_superblock > 0, "memory: there are no packed snapshots");
    const std::optional<PackedId> packed = take_unit<PackedId>(layout().packed_view());
    if (!packed) return std::nullopt;
    checkpoint.packed_ = *packed;
    return checkpoint;
  }
  const std::optional<SlotId> slot = take_unit<SlotId>(layout().slot_view());
  if (!slot) return std::nullopt;
  checkpoint.slot_ = *slot;
  return checkpoint;
}

Memory MemoryPool::take_over(Checkpoint checkpoint) {
  require(checkpoint.pool_ == this && checkpoint.packed_ == no_packed,
          "memory: what is taken over is exact, and of this pool");
  Memory memory(*this);
  std::swap(memory.tables_, checkpoint.tables_);
  memory.read_slot_ = std::exchange(checkpoint.slot_, no_slot);
  memory.write_slot_ = memory.read_slot_;
  memory.length_ = checkpoint.length_;
  return memory;
}

Checkpoint MemoryPool::share(const Checkpoint& checkpoint) {
  require(checkpoint.pool_ == this, "memory: a checkpoint is shared in its own pool");
  Checkpoint other(*this, checkpoint.length_);
  other.tables_ = checkpoint.tables_;
  for (std::int32_t group = 0; group < layout().group_count(); ++group) {
    for (const PageId page : other.tables_[static_cast<std::size_t>(group)]) {
      share(ViewId{group}, index(page));
    }
  }
  other.slot_ = checkpoint.slot_;
  share(layout().slot_view(), index(other.slot_));
  other.packed_ = checkpoint.packed_;
  share(layout().packed_view(), index(other.packed_));
  return other;
}

bool MemoryPool::is_written(const Checkpoint& checkpoint) const {
  if (layout().group_count() == 0 || checkpoint.length_ % layout().page_tokens == 0) return false;
  const auto page = static_cast<std::size_t>(checkpoint.length_ / layout().page_tokens);
  return std::ranges::any_of(memories_.all(), [&](const Memory* memory) {
    if (static_cast<std::size_t>(memory->length_ / layout().page_tokens) != page) return false;
    const PageTable& own = memory->tables_.front();  // partly filled pages are held in all groups
    return page < own.size() && own[page] == checkpoint.tables_.front()[page];
  });
}

/// Every unit that a memory or checkpoint holds.
template <typename Held, typename Action>
void MemoryPool::for_units(const Held& held, const Action& action) const {
  const auto act = [&](ViewId view, auto id) {
    if (index(id) >= 0) action(view, index(id));
  };
  for (std::int32_t group = 0; group < layout().group_count(); ++group) {
    for (const PageId page : held.tables_[static_cast<std::size_t>(group)]) {
      act(ViewId{group}, page);
    }
  }
  if constexpr (std::is_same_v<Held, Memory>) {
    act(layout().slot_view(), held.read_slot_);
    act(layout().slot_view(), held.write_slot_);
    for (const Memory::ReservedCut& cut : held.cuts_) act(layout().slot_view(), cut.next_slot);
    act(layout().ring_view(), held.ring_);
  } else {
    act(layout().slot_view(), held.slot_);
    act(layout().packed_view(), held.packed_);
  }
}

template <typename Held>
void MemoryPool::pin(const Held& held) {
  for_units(held, [&](ViewId view, std::int32_t unit) {
    superblocks_.pin(superblocks_.superblock_of(view, unit));
  });
}
template void MemoryPool::pin(const Memory&);
template void MemoryPool::pin(const Checkpoint&);

template <typename Held>
void MemoryPool::unpin(const Held& held) {
  for_units(held, [&](ViewId view, std::int32_t unit) {
    superblocks_.unpin(superblocks_.superblock_of(view, unit));
  });
}
template void MemoryPool::unpin(const Memory&);
template void MemoryPool::unpin(const Checkpoint&);

std::vector<Order> MemoryPool::take_orders() {
  std::vector<Order> orders;
  take_orders(orders);
  return orders;
}

void MemoryPool::take_orders(std::vector<Order>& orders) {
  compaction_bytes_left_ = compaction_bytes_max_;
  if (steps_to_ask_ > 0 && --steps_to_ask_ == 0) retry_uncommitted();
  orders.clear();
  orders.swap(orders_);
}

void MemoryPool::limit_compaction(std::size_t bytes_per_step) {
  compaction_bytes_max_ = bytes_per_step;
  compaction_bytes_left_ = bytes_per_step;
}

void MemoryPool::resync_owners() {
  orders_.clear();
  if (superblocks_.is_fixed() && !orders_fixed_owners_) return;
  for (std::int32_t at = 0; at < layout().superblocks; ++at) {
    const SuperblockId superblock{at};
    const Superblocks::Superblock& one = superblocks_[superblock];
    if (one.pins > 0) continue;
    if (one.is_free) {
      superblocks_.set_last_owner(superblock, no_view);
    } else if (one.owner != no_view || one.uncommitted == Superblocks::Uncommitted::for_good) {
      orders_.push_back(ChangeOwner{.superblock = superblock, .from = no_view, .to = one.owner});
    }
  }
}

UnitSet MemoryPool::void_units(std::span<const Order> failed) const {
  UnitSet units;
  for (const Order& order : failed) {
    if (const auto to = units_of(order, layout()).to) units.insert(*to);
  }
  for (const Order& order : orders_) {
    const OrderUnits of = units_of(order, layout());
    const bool is_void = std::any_of(of.from.begin(), of.from.end(),
                                     [&](const ViewUnit& unit) { return units.contains(unit); });
    if (of.to && is_void) units.insert(*of.to);
  }
  return units;
}

template <typename Held>
bool MemoryPool::holds(const Held& held, const UnitSet& units) const {
  bool found = false;
  for_units(held, [&](ViewId view, std::int32_t unit) { found |= units.contains({view, unit}); });
  return found;
}
template bool MemoryPool::holds(const Memory&, const UnitSet&) const;
template bool MemoryPool::holds(const Checkpoint&, const UnitSet&) const;

void MemoryPool::order_owners_again(std::span<const Order> failed) {
  std::vector<Order> orders;
  for (const Order& order : failed) {
    const auto* change = std::get_if<ChangeOwner>(&order);
    if (change == nullptr) continue;
    orders.push_back(
        ChangeOwner{.superblock = change->superblock, .from = no_view, .to = change->to});
  }
  orders_.insert(orders_.begin(), orders.begin(), orders.end());
}

std::int32_t MemoryPool::give_back(std::int32_t superblocks_max) {
  std::int32_t given = 0;
  for (std::int32_t at = layout().superblocks; at-- > 0 && given < superblocks_max;) {
    const SuperblockId superblock{at};
    const ViewId owner = superblocks_[superblock].owner;
    if (!superblocks_[superblock].is_free || owner == no_view) continue;
    orders_.push_back(ChangeOwner{.superblock = superblock, .from = owner, .to = no_view});
    superblocks_.set_last_owner(superblock, no_view);
    ++given;
  }
  return given;
}

std::int32_t MemoryPool::order_ahead(std::int32_t states) {
  std::int32_t ordered = 0;
  for (const ViewId view : {layout().slot_view(), layout().packed_view()}) {
    const std::int32_t each = layout().units_per_superblock(view);
    if (each == 0 || superblocks_.is_fixed()) continue;
    while (superblocks_.idle(view) < (states + each - 1) / each) {
      const std::optional<SuperblockId> superblock = superblocks_.ownerless();
      if (!superblock || (backing_ && !backing_(*superblock, true))) break;
      superblocks_.set_last_owner(*superblock, view);
      orders_.push_back(
          ChangeOwner{.superblock = *superblock, .from = no_view, .to = view, .is_ahead = true});
      ++ordered;
    }
  }
  return ordered;
}

std::int32_t MemoryPool::shrink(std::int32_t superblocks_max) {
  std::int32_t given = 0;
  for (std::int32_t at = layout().superblocks; at-- > 0 && given < superblocks_max;) {
    const SuperblockId superblock{at};
    const Superblocks::Superblock& one = superblocks_[superblock];
    if (!one.is_free || (backing_ && !backing_(superblock, false))) continue;
    orders_.push_back(ChangeOwner{.superblock = superblock, .from = one.owner, .to = no_view});
    superblocks_.set_uncommitted(superblock, true);
    ++given;
  }
  return given;
}

std::optional<std::int32_t> MemoryPool::take(ViewId view, std::int32_t after) {
  bool was_refused = false;
  for (;;) {
    std::optional<TakenUnit> taken = superblocks_.take(view, after);
    if (!taken && layout().units_per_superblock(view) > 0 && compact_for(view)) {
      taken = superblocks_.take(view);
    }
    if (!taken) return std::nullopt;
    if (!taken->owner_changed) return taken->unit;
    const SuperblockId superblock = superblocks_.superblock_of(view, taken->unit);
    if (taken->owner_before == no_view && !is_backed(superblock, !was_refused)) {
      was_refused = true;  // others may still have the memory of their last owner
      superblocks_.drop(view, taken->unit);
      superblocks_.set_uncommitted(superblock, false);
      continue;
    }
    orders_.push_back(
        ChangeOwner{.superblock = superblock, .from = taken->owner_before, .to = view});
    if (taken->owner_before != no_view) ++owner_changes_;
    return taken->unit;
  }
}

bool MemoryPool::is_backed(SuperblockId superblock, bool may_create) {
  if (!backing_) return true;
  if (backing_(superblock, may_create)) {
    const bool is_all = superblocks_.uncommitted() == superblocks_.given_up();
    if (is_all) steps_between_asks_ = steps_between_asks_min;
    return true;
  }
  if (may_create) {
    steps_to_ask_ = steps_between_asks_;
    steps_between_asks_ = std::min(2 * steps_between_asks_, steps_between_asks_max);
  }
  return false;
}

/// After the last page of the table where that is free: runs of pages are read faster.
std::optional<PageId> MemoryPool::take_page(std::int32_t group, const PageTable& table) {
  return take_unit<PageId>(ViewId{group}, table.empty() ? -1 : index(table.back()));
}

void MemoryPool::drop(std::int32_t group, PageTable& table) noexcept {
  for (const PageId page : table) drop(ViewId{group}, index(page));
}

namespace {

/// Knows where the units of one superblock moved.
class Moves {
 public:
  Moves(SuperblockId superblock, std::int32_t units)
      : first_(index(superblock) * units), to_(static_cast<std::size_t>(units), -1) {}

  void add(std::int32_t from, std::int32_t to) {
    to_[static_cast<std::size_t>(from - first_)] = to;
  }

  template <IdType Id>
  void apply(Id& id) const {
    // Ids below the first wrap around to large numbers.
    const auto at = static_cast<std::uint32_t>(index(id)) - static_cast<std::uint32_t>(first_);
    if (at < to_.size()) id = Id{to_[at]};
  }

 private:
  std::int32_t first_;
  std::vector<std::int32_t> to_;
};

/// Number of holders found of every unit of a view.
using Found = std::vector<std::int32_t>;

void count(Found& found, std::int32_t unit) {
  if (unit >= 0) ++found.at(static_cast<std::size_t>(unit));
}

void count(Found& found, const PageTable& table) {
  for (const PageId page : table) count(found, index(page));
}

void check_view(const Found& found, const Superblocks& superblocks, ViewId view,
                const std::string& what) {
  for (std::size_t unit = 0; unit < found.size(); ++unit) {
    const std::int32_t users = superblocks.users(view, static_cast<std::int32_t>(unit));
    require(found[unit] == users, "memory: " + what + " " + std::to_string(unit) + " has " +
                                      std::to_string(found[unit]) + " holders and counts " +
                                      std::to_string(users));
  }
}

/// Pages that the kinds need are there, and pages that they no longer need are released.
void check_table(const MemoryLayout& layout, std::span<const PageTable> tables,
                 std::int32_t length) {
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    const PageTable& table = tables[static_cast<std::size_t>(group)];
    for (std::int32_t page = 0; page < pages_for(layout, length); ++page) {
      const bool is_written = (page + 1) * layout.page_tokens <= length;
      const bool held = table.at(static_cast<std::size_t>(page)) != no_page;
      if (layout.holds_page(group, page, length)) {
        require(held, "memory: page " + std::to_string(page) + " is needed and not there");
      } else if (is_written) {
        require(!held, "memory: page " + std::to_string(page) + " fell out and is still held");
      }
    }
  }
}

std::string name_of(const MemoryLayout& layout, std::int32_t view) {
  if (ViewId{view} == layout.slot_view()) return "slot";
  if (ViewId{view} == layout.packed_view()) return "packed snapshot";
  if (ViewId{view} == layout.ring_view()) return "ring";
  return "page";
}

}  // namespace

/// Frees the superblock that costs the fewest bytes to empty.
///
/// A view that was dry has no such room until it has released a superblock's worth of units, so
/// memory does not move back and forth.
bool MemoryPool::compact_for(ViewId dry) {
  std::optional<SuperblockId> sparsest;
  std::size_t bytes_least = 0;
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    if (ViewId{view} == dry) continue;
    const std::optional<SuperblockId> found = superblocks_.sparsest(ViewId{view});
    if (!found) continue;
    const std::size_t bytes =
        static_cast<std::size_t>(superblocks_[*found].used) * layout().unit_bytes(ViewId{view});
    if (bytes > compaction_bytes_left_ || (sparsest && bytes >= bytes_least)) continue;
    sparsest = found;
    bytes_least = bytes;
  }
  if (!sparsest) return false;
  compaction_bytes_left_ -= bytes_least;
  empty(*sparsest);
  return true;
}

void MemoryPool::empty(SuperblockId superblock) {
  const ViewId view = superblocks_[superblock].owner;
  Moves moves(superblock, layout().units_per_superblock(view));
  superblocks_.close(superblock);
  std::int32_t last = -1;
  for (const std::int32_t from : superblocks_.units_in_use(superblock)) {
    const std::optional<TakenUnit> taken = superblocks_.take(view, last);
    require(taken && !taken->owner_changed, "memory: the other superblocks have room");
    last = taken->unit;
    moves.add(from, taken->unit);
    orders_.push_back(UnitCopy{.view = view, .from = from, .to = taken->unit});
    for (std::int32_t users = superblocks_.users(view, from); users > 0; --users) {
      if (users > 1) superblocks_.share(view, taken->unit);
      superblocks_.drop(view, from);
    }
    ++compacted_units_;
  }
  for (Memory* memory : memories_.all()) {
    if (view == layout().slot_view()) {
      moves.apply(memory->read_slot_);
      moves.apply(memory->write_slot_);
      for (Memory::ReservedCut& cut : memory->cuts_) moves.apply(cut.next_slot);
    } else if (view == layout().ring_view()) {
      moves.apply(memory->ring_);
      for (Memory::Branch& branch : memory->branches_) moves.apply(branch.ring);
    } else if (view != layout().packed_view()) {
      const auto group = static_cast<std::size_t>(index(view));
      for (PageId& page : memory->tables_[group]) moves.apply(page);
      for (Memory::Branch& branch : memory->branches_) {
        if (group >= branch.tables.size()) continue;
        for (PageId& page : branch.tables[group]) moves.apply(page);
      }
    }
  }
  for (Checkpoint* checkpoint : checkpoints_.all()) {
    if (view == layout().slot_view()) {
      moves.apply(checkpoint->slot_);
    } else if (view == layout().packed_view()) {
      moves.apply(checkpoint->packed_);
    } else if (view != layout().ring_view()) {
      for (PageId& page : checkpoint->tables_[static_cast<std::size_t>(index(view))]) {
        moves.apply(page);
      }
    }
  }
}

bool MemoryPool::all_free() const {
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    if (superblocks_.units_used(ViewId{view}) != 0) return false;
  }
  return true;
}

std::size_t PoolUsage::page_bytes() const {
  std::size_t bytes = 0;
  for (const UnitUsage& group : pages) bytes += group.bytes;
  return bytes;
}

std::size_t PoolUsage::total() const {
  return page_bytes() + live_slots.bytes + snapshot_slots.bytes + packed.bytes + rings.bytes +
         idle_bytes + free_bytes + remainder_bytes;
}

PoolUsage MemoryPool::usage() const {
  const MemoryLayout& cut = layout();
  const auto used = [&](ViewId view) {
    const std::int64_t units = superblocks_.units_used(view);
    return UnitUsage{.kind = {},
                     .units = units,
                     .bytes = static_cast<std::size_t>(units) * cut.unit_bytes(view)};
  };
  PoolUsage usage;
  for (std::int32_t group = 0; group < layout().group_count(); ++group) {
    UnitUsage& pages = usage.pages.emplace_back(used(ViewId{group}));
    pages.kind = cut.groups[static_cast<std::size_t>(group)].kind->name();
  }
  std::vector<std::int32_t> live;
  for (const Memory* memory : memories_.all()) {
    for (const SlotId slot : {memory->read_slot_, memory->write_slot_}) {
      if (slot != no_slot) live.push_back(index(slot));
    }
  }
  std::sort(live.begin(), live.end());
  usage.live_slots.units = std::unique(live.begin(), live.end()) - live.begin();
  usage.live_slots.bytes = static_cast<std::size_t>(usage.live_slots.units) * cut.slots.bytes;
  const UnitUsage slots = used(cut.slot_view());
  usage.snapshot_slots.units = slots.units - usage.live_slots.units;
  usage.snapshot_slots.bytes = slots.bytes - usage.live_slots.bytes;
  usage.packed = used(cut.packed_view());
  usage.rings = used(cut.ring_view());

  std::int32_t superblocks_used = 0;
  for (std::int32_t view = 0; view < cut.views(); ++view) {
    const ViewId id{view};
    const std::size_t bytes =
        static_cast<std::size_t>(cut.units_per_superblock(id)) * cut.unit_bytes(id);
    const std::int32_t count = superblocks_.superblocks_used(id);
    superblocks_used += count;
    usage.idle_bytes += static_cast<std::size_t>(superblocks_.units_idle(id)) * cut.unit_bytes(id);
    usage.remainder_bytes += static_cast<std::size_t>(count) * (cut.superblock_bytes - bytes);
  }
  usage.superblocks = cut.superblocks;
  usage.superblocks_free = cut.superblocks - superblocks_used;
  usage.free_bytes = static_cast<std::size_t>(usage.superblocks_free) * cut.superblock_bytes;
  usage.superblocks_idle = superblocks_.idle();
  usage.superblocks_uncommitted = superblocks_.uncommitted();
  usage.owner_changes = owner_changes_;
  usage.compacted_units = compacted_units_;
  return usage;
}

void MemoryPool::audit() const {
  superblocks_.audit();
  for (std::size_t i = 0; i < memories_.all().size(); ++i) {
    require(memories_.all()[i]->registry_index_ == i, "memory: a sequence is registered once");
  }
  for (std::size_t i = 0; i < checkpoints_.all().size(); ++i) {
    require(checkpoints_.all()[i]->registry_index_ == i, "memory: a checkpoint is registered once");
  }
  for (const Memory* memory : memories_.all()) {
    // A write slot has one holder, or a step would write into a snapshot.
    for (std::int32_t cuts = 0; cuts <= memory->cuts_reserved(); ++cuts) {
      const SlotId slot = memory->piece(cuts).write_slot;
      require(slot == no_slot || superblocks_.users(layout().slot_view(), index(slot)) == 1,
              "memory: a write slot is shared");
    }
    require(memory->ring_entries_ == 0 ||
                (memory->ring_ != no_ring &&
                 superblocks_.users(layout().slot_view(), index(memory->read_slot_)) == 1 &&
                 memory->ring_entries_ <= layout().ring_tokens),
            "memory: entries of a ring wait to be applied to a slot of the sequence's own");
    require(!memory->branches_.empty() || !memory->has_branch_slot_,
            "memory: a slot is held for branches that there are");
    check_table(layout(), memory->tables_, memory->length_);
    for (const PageTable& table : memory->tables_) {
      // The page that is written next may be shared with checkpoints that end in it.
      const auto next = static_cast<std::size_t>(memory->length_ / layout().page_tokens);
      require(table.size() >= static_cast<std::size_t>(pages_for(layout(), memory->length_)),
              "memory: fewer pages than tokens");
      for (std::size_t i = next + 1; i < table.size(); ++i) {
        const auto group = static_cast<std::int32_t>(&table - memory->tables_.data());
        require(superblocks_.users(ViewId{group}, index(table[i])) == 1,
                "memory: a page that is still to be written is shared");
      }
    }
  }
  for (const Checkpoint* checkpoint : checkpoints_.all()) {
    check_table(layout(), checkpoint->tables_, checkpoint->length_);
    require(checkpoint->slot_ == no_slot || checkpoint->packed_ == no_packed,
            "memory: a checkpoint has one snapshot");
  }
  require(usage().total() == layout().bytes(), "memory: bytes by owner are not the budget");
}

void MemoryPool::audit(std::span<const Memory* const> memories,
                       std::span<const Checkpoint* const> checkpoints) const {
  audit();
  std::vector<Found> found;
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    found.emplace_back(static_cast<std::size_t>(layout().superblocks) *
                           static_cast<std::size_t>(layout().units_per_superblock(ViewId{view})),
                       0);
  }
  Found& slots = found[static_cast<std::size_t>(index(layout().slot_view()))];
  Found& packed = found[static_cast<std::size_t>(index(layout().packed_view()))];
  Found& rings = found[static_cast<std::size_t>(index(layout().ring_view()))];
  for (const Memory* memory : memories) {
    if (memory->pool_ != this) continue;
    for (std::size_t group = 0; group < memory->tables_.size(); ++group) {
      count(found[group], memory->tables_[group]);
    }
    count(slots, index(memory->write_slot_));
    count(rings, index(memory->ring_));
    for (const Memory::Branch& branch : memory->branches_) {
      count(rings, index(branch.ring));
      for (std::size_t group = 0; group < branch.tables.size(); ++group) {
        const PageTable& table = branch.tables[group];
        for (std::size_t i = memory->first_page_of_branches(); i < table.size(); ++i) {
          count(found[group], index(table[i]));
        }
      }
    }
    for (const Memory::ReservedCut& cut : memory->cuts_) count(slots, index(cut.next_slot));
    if (memory->read_slot_ != memory->write_slot_) count(slots, index(memory->read_slot_));
  }
  for (const Checkpoint* checkpoint : checkpoints) {
    if (checkpoint->pool_ != this) continue;
    for (std::size_t group = 0; group < checkpoint->tables_.size(); ++group) {
      count(found[group], checkpoint->tables_[group]);
    }
    count(slots, index(checkpoint->slot_));
    count(packed, index(checkpoint->packed_));
  }
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    check_view(found[static_cast<std::size_t>(view)], superblocks_, ViewId{view},
               name_of(layout(), view));
  }
}

}  // namespace hyb
