#include "core/memory/pool/layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/base/error.h"

namespace hyb {
namespace {

/// Returns whether the range and [from, length) have a position in common.
bool reaches(PositionRange positions, std::int32_t from, std::int32_t length) {
  return std::max(positions.first, from) < std::min(positions.last, length);
}

constexpr std::size_t stride_alignment = 64;

/// A view with what the search needs at every size.
struct Fitting {
  const ViewRequest* view;
  std::size_t unit_bytes = 0;  ///< all planes
  std::size_t step = 1;        ///< in units: other counts would end inside a handle of some plane
};

Fitting fitting_of(const ViewRequest& view, std::size_t handle_bytes) {
  Fitting fitting{.view = &view};
  for (const std::size_t bytes : view.plane_unit_bytes) {
    fitting.step = std::lcm(fitting.step, handle_bytes / std::gcd(handle_bytes, bytes));
    fitting.unit_bytes += bytes;
  }
  return fitting;
}

/// The most units that fit into the superblock: aligned to handles in every plane or, stretched,
/// with a stride that fills it to the last byte. 0: that wastes too much.
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

std::size_t page_bytes(const MemoryLayout& layout, std::int32_t group) {
  return layout.unit_bytes(ViewId{group});
}

/// Counts the superblocks that views use; each view uses whole ones.
class Demand {
 public:
  explicit Demand(const MemoryLayout& layout) : layout_(&layout) {}

  void add(ViewId view, std::int64_t units) {
    if (units == 0) return;
    const std::int64_t per_superblock = layout_->units_per_superblock(view);
    if (per_superblock == 0) {
      fits_ = false;
      return;
    }
    const std::int64_t needed = (units + per_superblock - 1) / per_superblock;
    superblocks_ += needed;
    const auto& fixed = layout_->fixed_superblocks;
    if (!fixed.empty() && needed > fixed[static_cast<std::size_t>(index(view))]) fits_ = false;
  }

  bool fits(std::int32_t lacking = 0) const {
    if (!layout_->fixed_superblocks.empty()) lacking = 0;
    return fits_ && superblocks_ <= layout_->superblocks - lacking;
  }

 private:
  const MemoryLayout* layout_;
  std::int64_t superblocks_ = 0;
  bool fits_ = true;
};

/// The greatest value in [0, most] for which `fits` holds; it holds for all below that.
template <typename Fits>
std::int32_t greatest(std::int32_t most, const Fits& fits) {
  if (fits(most)) return most;
  std::int32_t good = 0, bad = most;
  while (bad - good > 1) {
    const std::int32_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

bool FullAttention::needs(PositionRange positions, std::int32_t length) const {
  return reaches(positions, 0, length);
}

bool SlidingWindow::needs(PositionRange positions, std::int32_t length) const {
  return reaches(positions, length - window_ + 1, length);
}

bool ChunkedAttention::needs(PositionRange positions, std::int32_t length) const {
  return reaches(positions, length - length % chunk_, length);
}

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
  if (view == ring_view()) return rings.per_superblock;
  return groups[static_cast<std::size_t>(index(view))].pages_per_superblock;
}

std::size_t MemoryLayout::unit_bytes(ViewId view) const {
  if (view == slot_view()) return slots.bytes;
  if (view == packed_view()) return packed.bytes;
  if (view == ring_view()) return rings.bytes;
  return groups[static_cast<std::size_t>(index(view))].page_bytes;
}

std::size_t MemoryLayout::content_bytes(ViewId view) const {
  const std::size_t bytes = unit_bytes(view);
  if (view == slot_view()) return bytes - slots.padding_bytes;
  if (view == packed_view()) return bytes - packed.padding_bytes;
  if (view == ring_view()) return bytes - rings.padding_bytes;
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
  layout.fixed_superblocks.insert(layout.fixed_superblocks.end(), 2, 0);
  layout.superblocks = (has_pages ? 1 : 0) + (sizes.slots > 0 ? 1 : 0);
  return layout;
}

MemoryLayout with_state_share(MemoryLayout layout, double share) {
  if (!(share > 0 && share < 1)) {
    throw Error(ErrorKind::usage,
                "memory: a share of states is between 0 and 1: " + std::to_string(share));
  }
  if (layout.groups.size() != 1 || !layout.has_slots() || layout.superblocks < 2 ||
      !layout.fixed_superblocks.empty()) {
    throw Error(ErrorKind::usage,
                "memory: a share of states takes elastic memory of two superblocks or more, of a "
                "model with states and with one kind of attention");
  }
  const auto wanted = static_cast<std::int32_t>(std::lround(share * layout.superblocks));
  const std::int32_t states = std::clamp(wanted, 1, layout.superblocks - 1);
  layout.fixed_superblocks = {layout.superblocks - states, states, 0, 0};
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

std::int32_t pages_for(const MemoryLayout& layout, std::int32_t tokens) {
  if (layout.groups.empty()) return 0;
  return tokens / layout.page_tokens + (tokens % layout.page_tokens != 0 ? 1 : 0);
}

std::int32_t pages_held(const MemoryLayout& layout, std::int32_t group, std::int32_t length) {
  std::int32_t held = 0;
  for (std::int32_t page = 0; page < pages_for(layout, length); ++page) {
    held += layout.holds_page(group, page, length) ? 1 : 0;
  }
  return held;
}

std::vector<std::int32_t> held_pages(const MemoryLayout& layout, std::int32_t group,
                                     std::int32_t length) {
  std::vector<std::int32_t> pages;
  for (std::int32_t page = 0; page * layout.page_tokens < length; ++page) {
    if (layout.holds_page(group, page, length)) pages.push_back(page);
  }
  return pages;
}

/// Walks through the chunks; during each, the pages from the first one still held to the chunk's
/// end exist at once. Chunks smaller than a page that start in the same page count as one.
std::int32_t pages_peak(const MemoryLayout& layout, std::int32_t group, std::int32_t length,
                        std::int32_t chunk_tokens) {
  const std::int32_t stride = std::max(chunk_tokens, layout.page_tokens);
  const std::int32_t reach =
      chunk_tokens < layout.page_tokens ? layout.page_tokens - 1 + chunk_tokens : chunk_tokens;
  std::int32_t peak = 0, fallen = 0, page = 0;
  for (std::int64_t begin = 0; begin < length; begin += stride) {
    const auto at = static_cast<std::int32_t>(begin);
    const auto end = static_cast<std::int32_t>(std::min<std::int64_t>(begin + reach, length));
    for (; page < at / layout.page_tokens; ++page) {
      if (!layout.holds_page(group, page, at)) {
        ++fallen;
      } else if (!layout.holds_page(group, page, length_endless)) {
        break;
      }
    }
    peak = std::max(peak, pages_for(layout, end) - fallen);
  }
  return peak;
}

std::size_t content_bytes_held(const MemoryLayout& layout, std::int32_t length,
                               std::int32_t shared) {
  std::size_t bytes = 0;
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    const std::vector<std::int32_t> pages = held_pages(layout, group, length);
    const auto lacking = std::ranges::count_if(
        pages, [&](std::int32_t page) { return (page + 1) * layout.page_tokens > shared; });
    bytes += static_cast<std::size_t>(lacking) * layout.content_bytes(ViewId{group});
  }
  return layout.has_slots() ? bytes + layout.content_bytes(layout.slot_view()) : bytes;
}

std::size_t bytes_peak(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens) {
  std::size_t bytes = layout.has_slots() ? layout.slots.bytes : 0;
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    bytes += static_cast<std::size_t>(pages_peak(layout, group, length, chunk_tokens)) *
             page_bytes(layout, group);
  }
  return bytes;
}

bool can_ever_hold(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens,
                   std::int32_t superblocks_lacking) {
  Demand demand(layout);
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    demand.add(ViewId{group}, pages_peak(layout, group, length, chunk_tokens));
  }
  demand.add(layout.slot_view(), layout.has_slots() ? 1 : 0);
  return demand.fits(superblocks_lacking);
}

std::int32_t length_max(const MemoryLayout& layout, std::int32_t most, std::int32_t chunk_tokens) {
  return greatest(most,
                  [&](std::int32_t length) { return can_ever_hold(layout, length, chunk_tokens); });
}

std::int32_t sequences_at_once(const MemoryLayout& layout, std::int32_t length, std::int32_t most) {
  std::vector<std::int64_t> pages;
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    pages.push_back(pages_held(layout, group, length));
  }
  return greatest(most, [&](std::int32_t sequences) {
    Demand demand(layout);
    for (std::int32_t group = 0; group < layout.group_count(); ++group) {
      demand.add(ViewId{group}, sequences * pages[static_cast<std::size_t>(group)]);
    }
    demand.add(layout.slot_view(), layout.has_slots() ? std::int64_t{sequences} + 1 : 0);
    return demand.fits();
  });
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
