#include "core/io/extents.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace hyb {

Extents::Extents(std::uint32_t sectors) : total_(sectors) {
  if (sectors > 0) add({.first = 0, .count = sectors});
}

void Extents::add(Extent extent) {
  by_place_.emplace(extent.first, extent.count);
  by_size_.emplace(extent.count, extent.first);
  free_ += extent.count;
}

void Extents::remove(Extent extent) {
  by_place_.erase(extent.first);
  by_size_.erase({extent.count, extent.first});
  free_ -= extent.count;
}

std::optional<std::vector<Extent>> Extents::take(std::uint32_t sectors) {
  if (sectors > free_) return std::nullopt;
  std::vector<Extent> taken;
  while (sectors > 0) {
    // The smallest that holds all, else the largest: as few pieces as possible.
    auto found = by_size_.lower_bound({sectors, 0});
    if (found == by_size_.end()) found = std::prev(found);
    const Extent whole{.first = found->second, .count = found->first};
    const Extent part{.first = whole.first, .count = std::min(whole.count, sectors)};
    remove(whole);
    if (part.count < whole.count) {
      add({.first = whole.first + part.count, .count = whole.count - part.count});
    }
    taken.push_back(part);
    sectors -= part.count;
  }
  return taken;
}

void Extents::give_back(std::span<const Extent> extents) {
  for (Extent extent : extents) {
    const auto after = by_place_.lower_bound(extent.first);
    require(after == by_place_.end() || after->first >= extent.first + extent.count,
            "extents: given back once");
    if (after != by_place_.begin()) {
      const Extent before{.first = std::prev(after)->first, .count = std::prev(after)->second};
      require(before.first + before.count <= extent.first, "extents: given back once");
      if (before.first + before.count == extent.first) {
        remove(before);
        extent = {.first = before.first, .count = before.count + extent.count};
      }
    }
    const auto next = by_place_.find(extent.first + extent.count);
    if (next != by_place_.end()) {
      const Extent behind{.first = next->first, .count = next->second};
      remove(behind);
      extent.count += behind.count;
    }
    add(extent);
  }
}

}  // namespace hyb
