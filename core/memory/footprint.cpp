#include "core/memory/footprint.h"

#include <algorithm>
#include <limits>

namespace hyb {
namespace {

constexpr std::int32_t length_endless = std::numeric_limits<std::int32_t>::max();

bool has_slots(const MemoryLayout& layout) { return layout.slots.per_superblock > 0; }

std::int32_t groups(const MemoryLayout& layout) {
  return static_cast<std::int32_t>(layout.groups.size());
}

std::size_t page_bytes(const MemoryLayout& layout, std::int32_t group) {
  return layout.unit_bytes(ViewId{group});
}

/// Counts superblocks that views use; each view has whole ones.
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

  bool fits() const { return fits_ && superblocks_ <= layout_->superblocks; }

 private:
  const MemoryLayout* layout_;
  std::int64_t superblocks_ = 0;
  bool fits_ = true;
};

/// The greatest value in [0, most] for which `fits` holds, given that it holds for all below.
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

/// Walks through the chunks; of each, the pages from the first one that is still held to its end
/// are there at once. Of chunks smaller than a page, those that begin in the same page are taken
/// together.
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

std::size_t bytes_held(const MemoryLayout& layout, std::int32_t length) {
  std::size_t bytes = has_slots(layout) ? layout.slots.bytes : 0;
  for (std::int32_t group = 0; group < groups(layout); ++group) {
    bytes +=
        static_cast<std::size_t>(pages_held(layout, group, length)) * page_bytes(layout, group);
  }
  return bytes;
}

std::size_t bytes_peak(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens) {
  std::size_t bytes = has_slots(layout) ? layout.slots.bytes : 0;
  for (std::int32_t group = 0; group < groups(layout); ++group) {
    bytes += static_cast<std::size_t>(pages_peak(layout, group, length, chunk_tokens)) *
             page_bytes(layout, group);
  }
  return bytes;
}

bool can_ever_hold(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens) {
  Demand demand(layout);
  for (std::int32_t group = 0; group < groups(layout); ++group) {
    demand.add(ViewId{group}, pages_peak(layout, group, length, chunk_tokens));
  }
  demand.add(layout.slot_view(), has_slots(layout) ? 1 : 0);
  return demand.fits();
}

std::int32_t length_max(const MemoryLayout& layout, std::int32_t most, std::int32_t chunk_tokens) {
  return greatest(most,
                  [&](std::int32_t length) { return can_ever_hold(layout, length, chunk_tokens); });
}

std::int32_t sequences_at_once(const MemoryLayout& layout, std::int32_t length, std::int32_t most) {
  std::vector<std::int64_t> pages;
  for (std::int32_t group = 0; group < groups(layout); ++group) {
    pages.push_back(pages_held(layout, group, length));
  }
  return greatest(most, [&](std::int32_t sequences) {
    Demand demand(layout);
    for (std::int32_t group = 0; group < groups(layout); ++group) {
      demand.add(ViewId{group}, sequences * pages[static_cast<std::size_t>(group)]);
    }
    demand.add(layout.slot_view(), has_slots(layout) ? std::int64_t{sequences} + 1 : 0);
    return demand.fits();
  });
}

}  // namespace hyb
