#include "core/memory/appraisal.h"

#include <algorithm>

#include "core/memory/resumable.h"

namespace hyb {

Appraisal::Appraisal(const MemoryLayout& layout, Precision precision, const PrefillCost& cost)
    : layout_(&layout),
      cost_(cost),
      state_bytes_(precision == Precision::int8 ? layout.packed.bytes : layout.slots.bytes),
      resumes_anywhere_(hyb::resumes_anywhere(layout)) {
  for (const PageGroup& group : layout.groups) {
    keeps_everything_.push_back(hyb::keeps_everything(*group.kind));
  }
}

std::size_t Appraisal::page_bytes(std::size_t group, const Standing& standing) const {
  const PageGroup& pages = layout_->groups[group];
  const std::int32_t tokens = layout_->page_tokens;
  const std::int32_t end = (standing.depth + tokens - 1) / tokens;
  const std::int32_t shared = standing.shared / tokens;  // whole pages; the one behind is private
  if (keeps_everything_[group]) return static_cast<std::size_t>(end - shared) * pages.page_bytes;

  const auto needed_by = [&](const Snapshot* snapshot, PositionRange positions) {
    return snapshot != nullptr && snapshot->node->depth >= positions.last &&
           pages.kind->needs(positions, snapshot->node->depth);
  };
  std::size_t count = 0;
  for (std::int32_t page = 0; page < end; ++page) {
    const PositionRange positions{page * tokens, std::min((page + 1) * tokens, standing.depth)};
    if (!layout_->holds_page(static_cast<std::int32_t>(group), page, standing.depth)) continue;
    const bool is_shared = page < shared && (needed_by(standing.other, positions) ||
                                             needed_by(standing.above, positions));
    if (!is_shared) ++count;
  }
  return count * pages.page_bytes;
}

std::size_t Appraisal::bytes(const Standing& standing) const {
  std::size_t bytes = state_bytes_;
  for (std::size_t group = 0; group < layout_->groups.size(); ++group) {
    bytes += page_bytes(group, standing);
  }
  return bytes;
}

double Appraisal::seconds(const Standing& standing) const {
  const std::int32_t above = standing.above == nullptr ? 0 : standing.above->node->depth;
  return cost_.of(standing.depth) - cost_.of(resumes_anywhere_ ? standing.shared : above);
}

double Appraisal::worth(const Standing& standing, double use_probability) const {
  const std::size_t freed = bytes(standing);
  return freed == 0 ? 0 : use_probability * seconds(standing) / static_cast<double>(freed);
}

}  // namespace hyb
