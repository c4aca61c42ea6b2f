#include "core/memory/resumable.h"

#include <algorithm>

namespace hyb {
namespace {

/// The first position of the group that a sequence at `length` needs and the table lacks; -1: none.
std::int32_t missing_position(const MemoryLayout& layout, std::int32_t group,
                              const PageTable& table, std::int32_t length) {
  const MemoryKind& kind = *layout.groups[static_cast<std::size_t>(group)].kind;
  const std::int32_t tokens = layout.page_tokens;
  for (std::int32_t page = 0; page * tokens < length; ++page) {
    const auto at = static_cast<std::size_t>(page);
    if (at < table.size() && table[at] != no_page) continue;
    if (!layout.holds_page(group, page, length)) continue;
    std::int32_t position = page * tokens;
    if (position + tokens > length) return position;
    while (!kind.needs({position, position + 1}, length)) ++position;
    return position;
  }
  return -1;
}

}  // namespace

std::int32_t resumable_length(const MemoryLayout& layout, const Checkpoint& checkpoint,
                              std::int32_t limit) {
  const std::int32_t own = checkpoint.length();
  if (own <= limit) return own;
  if (layout.slots.per_superblock > 0) return 0;
  for (std::int32_t length = limit; length > 0;) {
    // A position that is needed at some length is needed at every smaller one behind it, so of the
    // lengths from here down the first that may do ends at the first missing position.
    std::int32_t next = length;
    for (std::size_t group = 0; group < layout.groups.size(); ++group) {
      const std::int32_t missing = missing_position(layout, static_cast<std::int32_t>(group),
                                                    checkpoint.tables()[group], length);
      if (missing >= 0) next = std::min(next, missing);
    }
    if (next == length) return length;
    length = next;
  }
  return 0;
}

bool keeps_everything(const MemoryKind& kind) {
  constexpr std::int32_t far = 1 << 30;
  return kind.needs({0, 1}, far) && kind.needs({far / 2, far / 2 + 1}, far);
}

bool resumes_anywhere(const MemoryLayout& layout) {
  return layout.slots.per_superblock == 0 &&
         std::all_of(layout.groups.begin(), layout.groups.end(),
                     [](const PageGroup& group) { return keeps_everything(*group.kind); });
}

}  // namespace hyb
