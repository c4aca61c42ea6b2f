#include "core/memory/checkpoint_units.h"

#include "core/base/error.h"

namespace hyb {

std::vector<std::int32_t> held_pages(const MemoryLayout& layout, std::int32_t group,
                                     std::int32_t length) {
  std::vector<std::int32_t> pages;
  for (std::int32_t page = 0; page * layout.page_tokens < length; ++page) {
    if (layout.holds_page(group, page, length)) pages.push_back(page);
  }
  return pages;
}

std::vector<CheckpointUnit> units_of(const Checkpoint& checkpoint, const MemoryLayout& layout) {
  std::vector<CheckpointUnit> units;
  for (std::int32_t group = 0; group < static_cast<std::int32_t>(layout.groups.size()); ++group) {
    const PageTable& table = checkpoint.tables()[static_cast<std::size_t>(group)];
    for (const std::int32_t page : held_pages(layout, group, checkpoint.length())) {
      const PageId id = table.at(static_cast<std::size_t>(page));
      require(id != no_page, "checkpoint: it has the pages that its kinds need");
      units.push_back({.view = ViewId{group}, .page = page, .unit = index(id)});
    }
  }
  if (checkpoint.slot() != no_slot) {
    units.push_back({.view = layout.slot_view(), .page = 0, .unit = index(checkpoint.slot())});
  } else if (checkpoint.packed() != no_packed) {
    units.push_back({.view = layout.packed_view(), .page = 0, .unit = index(checkpoint.packed())});
  }
  return units;
}

}  // namespace hyb
