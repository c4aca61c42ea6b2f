// What the pool holds and could hold, in pages and bytes.
#include <algorithm>
#include <limits>

#include "core/memory/memory.h"

namespace hyb {
namespace {

constexpr std::int32_t length_endless = std::numeric_limits<std::int32_t>::max();

std::int64_t whole_superblocks(std::int64_t units, std::int32_t units_per_superblock) {
  return (units + units_per_superblock - 1) / units_per_superblock;
}

}  // namespace

std::int32_t MemoryPool::pages_for(std::int32_t tokens) const {
  const std::int32_t page = page_tokens();
  if (page == 0) return 0;
  return tokens / page + (tokens % page != 0 ? 1 : 0);
}

bool MemoryPool::needs(std::int32_t group, std::int32_t page, std::int32_t length) const {
  return layout().holds_page(group, page, length);
}

std::int64_t MemoryPool::pages_free(std::int32_t group) const {
  return group < groups() ? units_free(ViewId{group}) : 0;
}

std::int32_t MemoryPool::pages_held(std::int32_t group, std::int32_t length) const {
  std::int32_t held = 0;
  for (std::int32_t page = 0; page < pages_for(length); ++page) {
    held += needs(group, page, length) ? 1 : 0;
  }
  return held;
}

/// Walks through the chunks; of each, the pages from the first one that is still needed to its end
/// are there at once.
std::int32_t MemoryPool::pages_peak(std::int32_t group, std::int32_t length,
                                    std::int32_t chunk) const {
  std::int32_t peak = 0, fallen = 0, page = 0;
  for (std::int64_t begin = 0; begin < length; begin += chunk) {
    const auto at = static_cast<std::int32_t>(begin);
    const auto end = static_cast<std::int32_t>(std::min<std::int64_t>(begin + chunk, length));
    for (; page < at / page_tokens(); ++page) {
      if (!needs(group, page, at)) {
        ++fallen;
      } else if (!needs(group, page, length_endless)) {
        break;
      }
    }
    peak = std::max(peak, pages_for(end) - fallen);
  }
  return peak;
}

std::size_t MemoryPool::bytes_held(std::int32_t length) const {
  std::size_t bytes = has_slots() ? layout().slots.bytes : 0;
  for (std::int32_t group = 0; group < groups(); ++group) {
    bytes += static_cast<std::size_t>(pages_held(group, length)) *
             layout().groups[static_cast<std::size_t>(group)].page_bytes;
  }
  return bytes;
}

std::size_t MemoryPool::bytes_peak(std::int32_t length, std::int32_t chunk_tokens) const {
  std::size_t bytes = has_slots() ? layout().slots.bytes : 0;
  for (std::int32_t group = 0; group < groups(); ++group) {
    bytes += static_cast<std::size_t>(pages_peak(group, length, chunk_tokens)) *
             layout().groups[static_cast<std::size_t>(group)].page_bytes;
  }
  return bytes;
}

bool MemoryPool::can_ever_hold(std::int32_t length, std::int32_t chunk_tokens) const {
  std::int64_t superblocks = 0;
  for (std::int32_t view = 0; view <= groups(); ++view) {
    const std::int64_t units = view < groups() ? pages_peak(view, length, chunk_tokens)
                                               : std::int64_t{has_slots() ? 1 : 0};
    if (units == 0) continue;
    const std::int64_t needed =
        whole_superblocks(units, layout().units_per_superblock(ViewId{view}));
    superblocks += needed;
    const auto& fixed = layout().fixed_superblocks;
    if (!fixed.empty() && needed > fixed[static_cast<std::size_t>(view)]) return false;
  }
  return superblocks <= layout().superblocks;
}

bool MemoryPool::all_free() const {
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    if (superblocks_.units_used(ViewId{view}) != 0) return false;
  }
  return true;
}

std::size_t PoolUsage::total() const {
  std::size_t bytes = live_slots.bytes + snapshot_slots.bytes + packed.bytes + idle_bytes +
                      free_bytes + remainder_bytes;
  for (const Group& group : groups) bytes += group.pages.bytes;
  return bytes;
}

PoolUsage MemoryPool::usage() const {
  const MemoryLayout& cut = layout();
  const auto used = [&](ViewId view) {
    const std::int64_t units = superblocks_.units_used(view);
    return UnitUsage{.units = units,
                     .bytes = static_cast<std::size_t>(units) * cut.unit_bytes(view)};
  };
  PoolUsage usage;
  for (std::int32_t group = 0; group < groups(); ++group) {
    usage.groups.push_back({.kind = cut.groups[static_cast<std::size_t>(group)].kind->name(),
                            .pages = used(ViewId{group})});
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
  usage.snapshot_slots = {.units = slots.units - usage.live_slots.units,
                          .bytes = slots.bytes - usage.live_slots.bytes};
  usage.packed = used(cut.packed_view());

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
  usage.owner_changes = owner_changes_;
  usage.compacted_units = compacted_units_;
  return usage;
}

}  // namespace hyb
