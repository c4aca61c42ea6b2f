#include "core/memory/layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::size_t stride_alignment = 64;

/// The most units that begin and end with handles in every plane and fit into the superblock.
ViewPlan fit_planes(const ViewRequest& view, std::size_t handle_bytes, std::size_t handles) {
  std::size_t step = 1;  // of units: fewer would end inside a handle of some plane
  std::size_t bytes_per_unit = 0;
  for (const std::size_t bytes : view.plane_unit_bytes) {
    step = std::lcm(step, handle_bytes / std::gcd(handle_bytes, bytes));
    bytes_per_unit += bytes;
  }
  const std::size_t units = handles * handle_bytes / (step * bytes_per_unit) * step;
  ViewPlan plan{.units_per_superblock = static_cast<std::int32_t>(units),
                .plane_bytes = {},
                .unit_stride = 0};
  for (const std::size_t bytes : view.plane_unit_bytes) plan.plane_bytes.push_back(units * bytes);
  return plan;
}

/// The most units whose stretched stride fills the superblock to the last byte.
ViewPlan fit_stretched(const ViewRequest& view, std::size_t handle_bytes, std::size_t handles) {
  const std::size_t bytes = handles * handle_bytes;
  const std::size_t lines = bytes / stride_alignment;
  for (std::size_t units = bytes / view.plane_unit_bytes.front(); units > 0; --units) {
    if (lines % units != 0) continue;
    return {.units_per_superblock = static_cast<std::int32_t>(units),
            .plane_bytes = {bytes},
            .unit_stride = bytes / units};
  }
  return {.units_per_superblock = 0, .plane_bytes = {0}, .unit_stride = 0};
}

std::optional<ViewPlan> fit(const ViewRequest& view, std::size_t handle_bytes, std::size_t handles,
                            double waste_max) {
  if (view.plane_unit_bytes.empty()) return ViewPlan{0, {}, 0};
  const ViewPlan plan = view.may_stretch ? fit_stretched(view, handle_bytes, handles)
                                         : fit_planes(view, handle_bytes, handles);
  const std::size_t unit =
      std::accumulate(view.plane_unit_bytes.begin(), view.plane_unit_bytes.end(), std::size_t{0});
  const auto used = static_cast<double>(unit) * plan.units_per_superblock;
  const auto whole = static_cast<double>(handles * handle_bytes);
  if (used < (1 - waste_max) * whole) return std::nullopt;
  return plan;
}

}  // namespace

bool MemoryLayout::holds_page(std::int32_t group, std::int32_t page, std::int32_t length) const {
  const std::int64_t first = std::int64_t{page} * page_tokens;
  if (first >= length) return false;
  if (first + page_tokens > length) return true;
  const PositionRange positions{static_cast<std::int32_t>(first),
                                static_cast<std::int32_t>(first + page_tokens)};
  return groups[static_cast<std::size_t>(group)].kind->needs(positions, length);
}

std::int32_t MemoryLayout::units_per_superblock(ViewId view) const {
  if (view == slot_view()) return slots.per_superblock;
  if (view == packed_view()) return packed.per_superblock;
  return groups[static_cast<std::size_t>(index(view))].pages_per_superblock;
}

std::size_t MemoryLayout::unit_bytes(ViewId view) const {
  if (view == slot_view()) return slots.bytes;
  if (view == packed_view()) return packed.bytes;
  return groups[static_cast<std::size_t>(index(view))].page_bytes;
}

std::size_t MemoryLayout::store_bytes() const {
  if (fixed_superblocks.empty()) return bytes();
  std::size_t sum = 0;
  for (std::int32_t view = 0; view < views(); ++view) {
    sum += static_cast<std::size_t>(fixed_superblocks[static_cast<std::size_t>(view)]) *
           static_cast<std::size_t>(units_per_superblock(ViewId{view})) * unit_bytes(ViewId{view});
  }
  return sum;
}

std::int32_t MemoryLayout::first_unit(ViewId view) const {
  if (fixed_superblocks.empty()) return 0;
  const auto before = fixed_superblocks.begin();
  return std::accumulate(before, before + index(view), 0) * units_per_superblock(view);
}

MemoryLayout flat_layout(const FlatSizes& sizes) {
  static const FullAttention full;
  const bool has_pages = sizes.pages > 0 && sizes.page_tokens > 0;
  MemoryLayout layout;
  if (has_pages) {
    layout.page_tokens = sizes.page_tokens;
    layout.groups = {
        {.kind = &full, .page_bytes = sizes.page_bytes, .pages_per_superblock = sizes.pages}};
    layout.fixed_superblocks = {1};
    layout.superblock_bytes = static_cast<std::size_t>(sizes.pages) * sizes.page_bytes;
  }
  if (sizes.slots > 0) {
    layout.slots = {.bytes = sizes.slot_bytes, .per_superblock = sizes.slots};
    layout.superblock_bytes =
        std::max(layout.superblock_bytes, static_cast<std::size_t>(sizes.slots) * sizes.slot_bytes);
  }
  layout.fixed_superblocks.push_back(sizes.slots > 0 ? 1 : 0);
  layout.fixed_superblocks.push_back(0);
  layout.superblocks = (has_pages ? 1 : 0) + (sizes.slots > 0 ? 1 : 0);
  return layout;
}

SuperblockPlan plan_superblocks(std::span<const ViewRequest> views, std::size_t handle_bytes,
                                std::size_t bytes_max, double waste_max) {
  require(handle_bytes % stride_alignment == 0, "layout: a handle is a multiple of 64 bytes");
  for (const ViewRequest& view : views) {
    require(!view.may_stretch || view.plane_unit_bytes.size() <= 1,
            "layout: only a view of one plane can be stretched");
    for (const std::size_t bytes : view.plane_unit_bytes) require(bytes > 0, "layout: empty unit");
  }
  for (std::size_t handles = 1; handles * handle_bytes <= bytes_max; ++handles) {
    SuperblockPlan plan{
        .handle_bytes = handle_bytes, .handles = static_cast<std::int32_t>(handles), .views = {}};
    for (const ViewRequest& view : views) {
      std::optional<ViewPlan> found = fit(view, handle_bytes, handles, waste_max);
      if (!found) break;
      plan.views.push_back(*std::move(found));
    }
    if (plan.views.size() == views.size()) return plan;
  }
  throw Error(ErrorKind::memory, "memory: no superblock of up to " + std::to_string(bytes_max) +
                                     " bytes holds pages and slots of this model without waste; "
                                     "give more memory");
}

}  // namespace hyb
