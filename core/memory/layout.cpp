#include "core/memory/layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::size_t stride_alignment = 64;

/// A view with what the search asks of it at every size.
struct Fitting {
  const ViewRequest* view;
  std::size_t unit_bytes = 0;  ///< all planes
  std::size_t step = 1;        ///< of units: fewer would end inside a handle of some plane
};

Fitting fitting_of(const ViewRequest& view, std::size_t handle_bytes) {
  Fitting fitting{.view = &view};
  for (const std::size_t bytes : view.plane_unit_bytes) {
    fitting.step = std::lcm(fitting.step, handle_bytes / std::gcd(handle_bytes, bytes));
    fitting.unit_bytes += bytes;
  }
  return fitting;
}

/// The most units that fit into the superblock: of planes, that begin and end with handles;
/// stretched, whose stride fills it to the last byte. 0: those waste too much.
std::size_t units_in(const Fitting& fitting, std::size_t bytes, double waste_max) {
  const double least = (1 - waste_max) * static_cast<double>(bytes);
  const auto wastes = [&](std::size_t units) {
    return static_cast<double>(units * fitting.unit_bytes) < least;
  };
  if (!fitting.view->may_stretch) {
    const std::size_t units = bytes / (fitting.step * fitting.unit_bytes) * fitting.step;
    return wastes(units) ? 0 : units;
  }
  const std::size_t lines = bytes / stride_alignment;
  for (std::size_t units = bytes / fitting.unit_bytes; units > 0 && !wastes(units); --units) {
    if (lines % units == 0) return units;
  }
  return 0;
}

ViewPlan plan_of(const ViewRequest& view, std::size_t units, std::size_t superblock_bytes) {
  ViewPlan plan{.units_per_superblock = static_cast<std::int32_t>(units),
                .plane_bytes = {},
                .unit_stride = 0};
  if (view.plane_unit_bytes.empty()) return plan;
  if (view.may_stretch) {
    plan.plane_bytes = {superblock_bytes};
    plan.unit_stride = superblock_bytes / units;
    return plan;
  }
  for (const std::size_t bytes : view.plane_unit_bytes) plan.plane_bytes.push_back(units * bytes);
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

std::size_t MemoryLayout::content_bytes(ViewId view) const {
  const std::size_t bytes = unit_bytes(view);
  if (view == slot_view()) return bytes - slots.padding_bytes;
  if (view == packed_view()) return bytes - packed.padding_bytes;
  return bytes;
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
  std::vector<Fitting> fittings;
  std::size_t handles = 1;  // that the largest unit needs
  for (const ViewRequest& view : views) {
    fittings.push_back(fitting_of(view, handle_bytes));
    handles = std::max(handles, fittings.back().unit_bytes / handle_bytes);
  }
  std::vector<std::size_t> units(views.size());
  const auto fits = [&](std::size_t bytes) {
    for (std::size_t v = 0; v < views.size(); ++v) {
      if (views[v].plane_unit_bytes.empty()) continue;
      units[v] = units_in(fittings[v], bytes, waste_max);
      if (units[v] == 0) return false;
    }
    return true;
  };
  for (; handles * handle_bytes <= bytes_max; ++handles) {
    if (!fits(handles * handle_bytes)) continue;
    SuperblockPlan plan{
        .handle_bytes = handle_bytes, .handles = static_cast<std::int32_t>(handles), .views = {}};
    for (std::size_t v = 0; v < views.size(); ++v) {
      plan.views.push_back(plan_of(views[v], units[v], handles * handle_bytes));
    }
    return plan;
  }
  throw Error(ErrorKind::memory, "memory: no superblock of up to " + std::to_string(bytes_max) +
                                     " bytes holds pages and slots of this model without waste; "
                                     "give more memory");
}

}  // namespace hyb
