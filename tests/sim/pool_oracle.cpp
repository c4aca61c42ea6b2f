#include "tests/sim/pool_oracle.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb::sim {

RandomLayout::RandomLayout(Random& random) {
  constexpr std::size_t bytes = 240;
  layout.superblock_bytes = bytes;
  layout.superblocks = random.between(3, 14);
  layout.page_tokens = random.between(1, 5);
  for (int i = random.between(0, 3); i > 0; --i) {
    const std::int32_t size = random.between(1, 14);
    switch (random.between(0, 3)) {
      case 0:
        kinds.push_back(std::make_unique<FullAttention>());
        break;
      case 1:
        kinds.push_back(std::make_unique<SlidingWindow>(size));
        break;
      case 2:
        kinds.push_back(std::make_unique<ChunkedAttention>(size));
        break;
      default:
        kinds.push_back(std::make_unique<SinkWindow>(random.between(1, 6), size));
    }
    const std::int32_t pages = random.between(1, 12);
    layout.groups.push_back({.kind = kinds.back().get(),
                             .page_bytes = bytes / static_cast<std::size_t>(pages),
                             .pages_per_superblock = pages});
  }
  if (layout.groups.empty() || random.chance(70)) {
    const std::int32_t slots = random.between(1, 4), packed = random.between(1, 9);
    layout.slots = {.bytes = bytes / static_cast<std::size_t>(slots), .per_superblock = slots};
    layout.packed = {.bytes = bytes / static_cast<std::size_t>(packed), .per_superblock = packed};
  }
  if (!random.chance(25)) return;
  layout.fixed_superblocks.assign(static_cast<std::size_t>(layout.views()), 0);
  for (std::int32_t i = 0; i < layout.superblocks; ++i) {
    ++layout.fixed_superblocks[random.below(layout.fixed_superblocks.size())];
  }
}

ToyStore::ToyStore(const MemoryLayout& layout) : layout_(layout) {
  const auto count = static_cast<std::size_t>(layout.superblocks);
  for (const PageGroup& group : layout.groups) {
    pages_.emplace_back(count * static_cast<std::size_t>(group.pages_per_superblock) *
                        static_cast<std::size_t>(layout.page_tokens));
  }
  slots_.resize(count * static_cast<std::size_t>(layout.slots.per_superblock));
  packed_.resize(count * static_cast<std::size_t>(layout.packed.per_superblock));
  owners_.assign(count, no_view);
  std::int32_t at = 0;
  for (std::size_t view = 0; view < layout.fixed_superblocks.size(); ++view) {
    for (std::int32_t i = 0; i < layout.fixed_superblocks[view]; ++i) {
      owners_[static_cast<std::size_t>(at++)] = ViewId{static_cast<std::int32_t>(view)};
    }
  }
}

void ToyStore::own(ViewId view, std::int32_t unit) const {
  const std::int32_t units = layout_.units_per_superblock(view);
  require(unit >= 0 && units > 0 && unit < units * layout_.superblocks, "toy: a unit exists");
  require(owners_[static_cast<std::size_t>(unit / units)] == view, "toy: a unit is its view's");
}

std::uint64_t& ToyStore::at(std::int32_t group, PageId page, std::int32_t offset) {
  own(ViewId{group}, index(page));
  return pages_[static_cast<std::size_t>(group)]
               [static_cast<std::size_t>(index(page) * layout_.page_tokens + offset)];
}

ToyStore::Slot& ToyStore::slot(std::int32_t unit) {
  own(layout_.slot_view(), unit);
  return slots_[static_cast<std::size_t>(unit)];
}

ToyStore::Slot& ToyStore::packed(std::int32_t unit) {
  own(layout_.packed_view(), unit);
  return packed_[static_cast<std::size_t>(unit)];
}

void ToyStore::change_owner(const ChangeOwner& change) {
  require(layout_.fixed_superblocks.empty(), "toy: fixed superblocks do not change");
  const auto superblock = static_cast<std::size_t>(index(change.superblock));
  ViewId& owner = owners_[superblock];
  require(change.from == no_view || change.from == owner, "toy: a change names the owner before");
  owner = change.to;
  const auto lose = [&](auto& units, std::int32_t count) {
    const auto first = units.begin() + static_cast<std::ptrdiff_t>(superblock) * count;
    std::fill(first, first + count, typename std::decay_t<decltype(units)>::value_type{});
  };
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    lose(pages_[i], layout_.groups[i].pages_per_superblock * layout_.page_tokens);
  }
  lose(slots_, layout_.slots.per_superblock);
  lose(packed_, layout_.packed.per_superblock);
}

void ToyStore::carry_out(const std::vector<Order>& orders) {
  for (const Order& order : orders) {
    if (const auto* page = std::get_if<PageCopy>(&order)) {
      for (std::int32_t i = 0; i < layout_.page_tokens; ++i) {
        at(page->group, page->to, i) = at(page->group, page->from, i);
      }
    } else if (const auto* copy = std::get_if<SlotCopy>(&order)) {
      slot(index(copy->to)) = slot(index(copy->from));
    } else if (const auto* pack = std::get_if<PackSlot>(&order)) {
      packed(index(pack->to)) = slot(index(pack->from));
    } else if (const auto* unpack = std::get_if<UnpackSlot>(&order)) {
      slot(index(unpack->to)) = packed(index(unpack->from));
    } else if (const auto* moved = std::get_if<PackedCopy>(&order)) {
      packed(index(moved->to)) = packed(index(moved->from));
    } else {
      change_owner(std::get<ChangeOwner>(order));
    }
  }
}

void ToyStore::check(const MemoryPool& pool, std::span<const PageTable> tables,
                     const History& history) const {
  const auto length = static_cast<std::int32_t>(history.size());
  for (std::int32_t group = 0; group < pool.groups(); ++group) {
    const MemoryKind& kind = *layout_.groups[static_cast<std::size_t>(group)].kind;
    for (std::int32_t i = 0; i < length; ++i) {
      if (!kind.needs({.first = i, .last = i + 1}, length)) continue;
      const PageId page = tables[static_cast<std::size_t>(group)].at(
          static_cast<std::size_t>(i / layout_.page_tokens));
      require(at(group, page, i % layout_.page_tokens) == history[static_cast<std::size_t>(i)],
              "toy: a page holds what the sequence wrote");
    }
  }
}

void ToyStore::check_slot(SlotId id, const History& history) const {
  if (id == no_slot) return;
  own(layout_.slot_view(), index(id));
  const Slot& held = slots_[static_cast<std::size_t>(index(id))];
  const auto found = held.find(static_cast<std::int32_t>(history.size()));
  require(found != held.end() && found->second == history.back(),
          "toy: a slot holds what the sequence wrote");
}

void ToyStore::check_packed(PackedId id, const History& history) const {
  if (id == no_packed) return;
  own(layout_.packed_view(), index(id));
  const Slot& held = packed_[static_cast<std::size_t>(index(id))];
  const auto found = held.find(static_cast<std::int32_t>(history.size()));
  require(found != held.end() && found->second == history.back(),
          "toy: a packed snapshot holds what the sequence wrote");
}

void ToyStore::run(const Memory& memory, const History& after, std::int32_t tokens) {
  const std::int32_t begin = memory.length();
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int32_t i = begin; i < begin + tokens; ++i) {
      const PageId page =
          memory.tables()[group].at(static_cast<std::size_t>(i / layout_.page_tokens));
      at(static_cast<std::int32_t>(group), page, i % layout_.page_tokens) =
          after[static_cast<std::size_t>(i)];
    }
  }
  if (memory.write_slot() == no_slot) return;
  Slot& written = slot(index(memory.write_slot()));
  written.clear();
  for (std::int32_t i = begin; i <= begin + tokens; ++i) {
    if (i > 0) written[i] = after[static_cast<std::size_t>(i - 1)];
  }
}

void ToyStore::fill(const Checkpoint& checkpoint, const History& history) {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int32_t i = 0; i < checkpoint.length(); ++i) {
      const PageId page =
          checkpoint.tables()[group].at(static_cast<std::size_t>(i / layout_.page_tokens));
      if (page == no_page) continue;
      at(static_cast<std::int32_t>(group), page, i % layout_.page_tokens) =
          history[static_cast<std::size_t>(i)];
    }
  }
  const Slot held = {{checkpoint.length(), history.back()}};
  if (checkpoint.slot() != no_slot) slot(index(checkpoint.slot())) = held;
  if (checkpoint.packed() != no_packed) packed(index(checkpoint.packed())) = held;
}

}  // namespace hyb::sim
