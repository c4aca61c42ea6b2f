#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/memory/memory.h"

namespace hyb {

MemoryPool::MemoryPool(MemoryLayout layout) : superblocks_(std::move(layout)) {
  for (const PageGroup& group : this->layout().groups) {
    require(group.kind != nullptr && !group.kind->is_recurrent(),
            "memory: a group of pages has a kind that has pages");
  }
  limit_compaction(this->layout().superblock_bytes);
}

std::optional<Memory> MemoryPool::start() {
  Memory memory(*this);
  if (has_slots()) {
    const std::optional<SlotId> slot = take_slot();
    if (!slot) return std::nullopt;
    memory.write_slot_ = *slot;
  }
  return memory;
}

bool MemoryPool::can_resume(const Checkpoint& checkpoint, std::int32_t length) const {
  if (length <= 0 || length > checkpoint.length_) return false;
  if (length == checkpoint.length_) return true;
  if (has_slots()) return false;
  const auto pages = static_cast<std::size_t>(pages_for(length));
  for (std::int32_t group = 0; group < groups(); ++group) {
    const PageTable& table = checkpoint.tables_[static_cast<std::size_t>(group)];
    for (std::size_t i = 0; i < pages; ++i) {
      if (table[i] == no_page && needs(group, static_cast<std::int32_t>(i), length)) return false;
    }
  }
  return true;
}

std::optional<Memory> MemoryPool::resume(const Checkpoint& checkpoint, std::int32_t length) {
  require(checkpoint.pool_ == this, "memory: a checkpoint is resumed in its own pool");
  require(can_resume(checkpoint, length), "memory: a checkpoint is resumed where it can be");
  std::optional<Memory> memory = start();
  if (!memory) return std::nullopt;
  const auto pages = static_cast<std::size_t>(pages_for(length));
  const bool has_partial = !layout().groups.empty() && length % page_tokens() != 0;
  const std::size_t full = has_partial ? pages - 1 : pages;
  for (std::int32_t group = 0; group < groups(); ++group) {
    const PageTable& from = checkpoint.tables_[static_cast<std::size_t>(group)];
    PageTable& table = memory->tables_[static_cast<std::size_t>(group)];
    table.assign(pages, no_page);
    for (std::size_t i = 0; i < full; ++i) {
      if (from[i] == no_page) continue;
      const bool wanted =
          length == checkpoint.length_ || needs(group, static_cast<std::int32_t>(i), length);
      if (!wanted) continue;
      share(group, from[i]);
      table[i] = from[i];
    }
    if (!has_partial || !needs(group, static_cast<std::int32_t>(full), length)) continue;
    const std::optional<PageId> copy = take_page(group, table);
    if (!copy) return std::nullopt;
    table[full] = *copy;
  }
  // Said only now that nothing fails any more; and taking pages may have moved others.
  for (std::int32_t group = 0; group < groups(); ++group) {
    const PageTable& from = checkpoint.tables_[static_cast<std::size_t>(group)];
    const PageTable& table = memory->tables_[static_cast<std::size_t>(group)];
    if (has_partial && table[full] != no_page) {
      orders_.push_back(PageCopy{.group = group, .from = from[full], .to = table[full]});
    }
  }
  memory->length_ = length;
  if (checkpoint.packed_ != no_packed) {
    orders_.push_back(UnpackSlot{.from = checkpoint.packed_, .to = memory->write_slot_});
    memory->read_slot_ = memory->write_slot_;
    return memory;
  }
  share(checkpoint.slot_);
  memory->read_slot_ = checkpoint.slot_;
  return memory;
}

std::optional<Checkpoint> MemoryPool::vacant(std::int32_t length, Precision precision,
                                             const SharedPrefix& prefix) {
  require(length > 0, "memory: a checkpoint has a length");
  require(prefix.from == nullptr || prefix.tokens <= prefix.from->length_,
          "memory: no more tokens are shared than there are");
  const std::int32_t pages_shared =
      prefix.from == nullptr || groups() == 0 ? 0 : std::min(prefix.tokens, length) / page_tokens();
  Checkpoint checkpoint(*this, length);
  for (std::int32_t group = 0; group < groups(); ++group) {
    PageTable& table = checkpoint.tables_[static_cast<std::size_t>(group)];
    for (std::int32_t page = 0; page < pages_for(length); ++page) {
      std::optional<PageId> taken = no_page;
      if (needs(group, page, length)) {
        const auto at = static_cast<std::size_t>(page);
        if (page < pages_shared) taken = prefix.from->tables_[static_cast<std::size_t>(group)][at];
        if (taken != no_page) {
          share(group, *taken);
        } else {
          taken = take_page(group, table);
        }
      }
      if (!taken) return std::nullopt;
      table.push_back(*taken);
    }
  }
  if (!has_slots()) return checkpoint;
  if (precision == Precision::int8) {
    require(layout().packed.per_superblock > 0, "memory: there are no packed snapshots");
    const std::optional<PackedId> packed = take_packed();
    if (!packed) return std::nullopt;
    checkpoint.packed_ = *packed;
    return checkpoint;
  }
  const std::optional<SlotId> slot = take_slot();
  if (!slot) return std::nullopt;
  checkpoint.slot_ = *slot;
  return checkpoint;
}

std::vector<Order> MemoryPool::take_orders() {
  std::vector<Order> orders;
  take_orders(orders);
  return orders;
}

void MemoryPool::take_orders(std::vector<Order>& orders) {
  pass_step();
  orders.clear();
  orders.swap(orders_);
}

void MemoryPool::pass_step() {
  compaction_bytes_left_ = compaction_bytes_max_;
  if (steps_to_ask_ > 0 && --steps_to_ask_ == 0) release_withheld();
}

void MemoryPool::limit_compaction(std::size_t bytes_per_step) {
  compaction_bytes_max_ = bytes_per_step;
  compaction_bytes_left_ = bytes_per_step;
}

void MemoryPool::repeat_owners() {
  orders_.clear();
  if (superblocks_.is_fixed()) return;
  for (std::int32_t at = 0; at < layout().superblocks; ++at) {
    const SuperblockId superblock{at};
    if (superblocks_.is_free(superblock)) {
      superblocks_.forget_owner(superblock);
    } else if (superblocks_.owner(superblock) != no_view ||
               superblocks_.is_withheld_for_good(superblock)) {
      orders_.push_back(ChangeOwner{
          .superblock = superblock, .from = no_view, .to = superblocks_.owner(superblock)});
    }
  }
}

std::int32_t MemoryPool::give_back(std::int32_t superblocks_max) {
  std::int32_t given = 0;
  for (std::int32_t at = layout().superblocks; at-- > 0 && given < superblocks_max;) {
    const SuperblockId superblock{at};
    if (!superblocks_.is_free(superblock) || superblocks_.owner(superblock) == no_view) continue;
    orders_.push_back(ChangeOwner{
        .superblock = superblock, .from = superblocks_.owner(superblock), .to = no_view});
    superblocks_.forget_owner(superblock);
    ++given;
  }
  return given;
}

std::int32_t MemoryPool::shrink(std::int32_t superblocks_max) {
  std::int32_t given = 0;
  for (std::int32_t at = layout().superblocks; at-- > 0 && given < superblocks_max;) {
    const SuperblockId superblock{at};
    if (!superblocks_.is_free(superblock)) continue;
    if (backing_ && !backing_(superblock, false)) continue;
    orders_.push_back(ChangeOwner{
        .superblock = superblock, .from = superblocks_.owner(superblock), .to = no_view});
    superblocks_.withhold(superblock, true);
    ++given;
  }
  return given;
}

bool MemoryPool::can_hold(std::int32_t length, std::int32_t chunk_tokens,
                          std::int32_t superblocks_lacking) const {
  MemoryLayout rest = layout();
  if (rest.fixed_superblocks.empty()) rest.superblocks -= superblocks_lacking;
  return hyb::can_ever_hold(rest, length, chunk_tokens);
}

bool MemoryPool::can_hold_now(std::int32_t length) const {
  return can_hold(length, 1, superblocks_withheld());
}

bool MemoryPool::can_ever_hold(std::int32_t length, std::int32_t chunk_tokens) const {
  return can_hold(length, chunk_tokens, superblocks_.superblocks_given_up());
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
      was_refused = true;  // others may have memory all the same: that of their last owner
      superblocks_.drop(view, taken->unit);
      superblocks_.withhold(superblock, false);
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
    const bool is_all = superblocks_withheld() == superblocks_.superblocks_given_up();
    if (is_all) steps_between_asks_ = steps_between_asks_min;
    return true;
  }
  if (may_create) {
    steps_to_ask_ = steps_between_asks_;
    steps_between_asks_ = std::min(2 * steps_between_asks_, steps_between_asks_max);
  }
  return false;
}

/// Behind the last page of the table where that is free: runs of pages are read faster.
std::optional<PageId> MemoryPool::take_page(std::int32_t group, const PageTable& table) {
  const std::int32_t after = table.empty() ? -1 : index(table.back());
  const std::optional<std::int32_t> unit = take(ViewId{group}, after);
  if (!unit) return std::nullopt;
  return PageId{*unit};
}

std::optional<SlotId> MemoryPool::take_slot() {
  const std::optional<std::int32_t> unit = take(layout().slot_view());
  if (!unit) return std::nullopt;
  return SlotId{*unit};
}

std::optional<PackedId> MemoryPool::take_packed() {
  const std::optional<std::int32_t> unit = take(layout().packed_view());
  if (!unit) return std::nullopt;
  return PackedId{*unit};
}

void MemoryPool::share(SlotId slot) {
  if (slot != no_slot) superblocks_.share(layout().slot_view(), index(slot));
}

void MemoryPool::drop(std::int32_t group, PageTable& table) noexcept {
  for (const PageId page : table) {
    if (page != no_page) drop(group, page);
  }
}

void MemoryPool::drop(std::int32_t group, PageId page) noexcept {
  superblocks_.drop(ViewId{group}, index(page));
}

void MemoryPool::drop(SlotId slot) noexcept {
  if (slot != no_slot) superblocks_.drop(layout().slot_view(), index(slot));
}

void MemoryPool::drop(PackedId packed) noexcept {
  if (packed != no_packed) superblocks_.drop(layout().packed_view(), index(packed));
}

}  // namespace hyb
