#include "core/engine/memory_demand.h"

#include <algorithm>
#include <limits>

#include "core/base/ids.h"

namespace hyb {
namespace {

std::int64_t superblocks_for(std::int64_t units, std::int32_t units_per_superblock) {
  if (units <= 0) return 0;
  return (units + units_per_superblock - 1) / units_per_superblock;
}

/// Units of each view that the sequences hold, shared ones counted once.
std::vector<std::int64_t> units_held(const MemoryPool& pool, std::span<Sequence* const> running) {
  const MemoryLayout& layout = pool.layout();
  std::vector<std::int64_t> held(static_cast<std::size_t>(layout.views()));
  std::vector<bool> is_held;
  const auto hold = [&](ViewId view, std::int32_t unit) {
    if (unit < 0 || is_held[static_cast<std::size_t>(unit)]) return;
    is_held[static_cast<std::size_t>(unit)] = true;
    ++held[static_cast<std::size_t>(index(view))];
  };
  const auto forget = [&](ViewId view) {
    is_held.assign(static_cast<std::size_t>(layout.superblocks) *
                       static_cast<std::size_t>(layout.units_per_superblock(view)),
                   false);
  };
  for (std::int32_t group = 0; group < pool.layout().group_count(); ++group) {
    forget(ViewId{group});
    for (const Sequence* sequence : running) {
      const PageTable& table = sequence->memory().tables()[static_cast<std::size_t>(group)];
      for (const PageId page : table) hold(ViewId{group}, index(page));
    }
  }
  forget(layout.slot_view());
  for (const Sequence* sequence : running) {
    hold(layout.slot_view(), index(sequence->memory().read_slot()));
    hold(layout.slot_view(), index(sequence->memory().write_slot()));
  }
  return held;
}

}  // namespace

MemoryDemand::MemoryDemand(const MemoryPool& pool)
    : pool_(&pool), units_(static_cast<std::size_t>(pool.layout().views())) {}

/// Adds `pages` pages, up to `length`; a kind holds no more at once than it needs there.
void MemoryDemand::add_pages(std::int32_t group, std::int32_t length, std::int64_t pages) {
  if (pages <= 0) return;
  units(ViewId{group}) +=
      std::min<std::int64_t>(pages, pages_held(pool_->layout(), group, length) + 1);
}

MemoryDemand& MemoryDemand::add_growth(const Memory& memory, std::int32_t tokens) {
  const std::int64_t pages = pages_for(pool_->layout(), memory.length() + tokens);
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    const PageTable& table = memory.tables()[static_cast<std::size_t>(group)];
    units(ViewId{group}) += std::max<std::int64_t>(0, pages - std::ssize(table));
  }
  return *this;
}

MemoryDemand& MemoryDemand::add_running(const Sequence& sequence) {
  const std::int64_t pages = pages_for(pool_->layout(), sequence.tokens());
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    const PageTable& table = sequence.memory().tables()[static_cast<std::size_t>(group)];
    add_pages(group, sequence.tokens(), pages - std::ssize(table));
    ++units(ViewId{group});
  }
  return *this;
}

MemoryDemand& MemoryDemand::add_newcomer(std::int32_t tokens, std::int32_t resumable) {
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    add_pages(group, tokens,
              pages_for(pool_->layout(), tokens) - resumable / pool_->layout().page_tokens);
  }
  return add_slots(1);
}

MemoryDemand& MemoryDemand::add_slots(std::int32_t slots) {
  if (pool_->layout().has_slots()) units(pool_->layout().slot_view()) += slots;
  return *this;
}

MemoryDemand& MemoryDemand::add_ring() {
  ++units(pool_->layout().ring_view());
  return *this;
}

MemoryDemand& MemoryDemand::add_branch(const Memory& memory, std::int32_t tokens) {
  const std::int64_t pages = pages_for(pool_->layout(), memory.length() + tokens);
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    units(ViewId{group}) += pages - memory.length() / pool_->layout().page_tokens;
  }
  if (pool_->layout().has_rings()) add_ring();
  return memory.read_slot() == memory.write_slot() ? add_slots(1) : *this;
}

bool MemoryDemand::fits() const {
  const MemoryLayout& layout = pool_->layout();
  const bool is_fixed = !layout.fixed_superblocks.empty();
  const std::int64_t free = pool_->superblocks().free();
  std::int64_t superblocks = 0;
  for (std::int32_t i = 0; i < layout.views(); ++i) {
    const ViewId view{i};
    const std::int64_t wanted = units_[static_cast<std::size_t>(i)];
    if (wanted > pool_->superblocks().units_free(view)) return false;
    if (wanted == 0 || is_fixed) continue;
    const std::int32_t each = layout.units_per_superblock(view);
    superblocks +=
        superblocks_for(wanted - (pool_->superblocks().units_free(view) - free * each), each);
  }
  return superblocks <= free;
}

ViewId MemoryDemand::driest() const {
  const MemoryLayout& layout = pool_->layout();
  const std::int64_t free = pool_->superblocks().free();
  ViewId driest{0};
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (std::int32_t i = 0; i < layout.views(); ++i) {
    const std::int32_t each = layout.units_per_superblock(ViewId{i});
    if (units_[static_cast<std::size_t>(i)] == 0) continue;
    const std::int64_t lacking =
        superblocks_for(units_[static_cast<std::size_t>(i)] -
                            (pool_->superblocks().units_free(ViewId{i}) - free * each),
                        each);
    if (lacking <= most) continue;
    driest = ViewId{i};
    most = lacking;
  }
  return driest;
}

bool MemoryDemand::fits_beside(std::span<Sequence* const> running) const {
  const MemoryLayout& layout = pool_->layout();
  const std::vector<std::int64_t> held = units_held(*pool_, running);
  std::int64_t superblocks = 0;
  for (std::int32_t i = 0; i < layout.views(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (units_[at] + held[at] == 0) continue;
    const std::int64_t needed =
        superblocks_for(units_[at] + held[at], layout.units_per_superblock(ViewId{i}));
    if (!layout.fixed_superblocks.empty() && needed > layout.fixed_superblocks[at]) return false;
    superblocks += needed;
  }
  return superblocks <= layout.superblocks - pool_->superblocks().uncommitted();
}

}  // namespace hyb
