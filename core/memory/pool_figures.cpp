// What the pool holds, by owner.
#include <algorithm>

#include "core/memory/memory.h"

namespace hyb {

std::int64_t MemoryPool::pages_free(std::int32_t group) const {
  return group < groups() ? units_free(ViewId{group}) : 0;
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
  usage.superblocks_idle = superblocks_idle();
  usage.superblocks_withheld = superblocks_.superblocks_withheld();
  usage.owner_changes = owner_changes_;
  usage.compacted_units = compacted_units_;
  return usage;
}

}  // namespace hyb
