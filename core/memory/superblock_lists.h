#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// Lists of superblocks, of which each is in one or none. All calls but the constructor take
/// constant time and allocate nothing.
class SuperblockLists {
 public:
  SuperblockLists(std::int32_t lists, std::int32_t superblocks);

  /// At the front. The superblock is in no list.
  void push(std::int32_t list, SuperblockId superblock);
  /// Does nothing when it is in no list.
  void remove(SuperblockId superblock);

  std::optional<SuperblockId> front(std::int32_t list) const;
  std::optional<SuperblockId> next(SuperblockId superblock) const;
  std::int32_t count(std::int32_t list) const { return counts_[static_cast<std::size_t>(list)]; }
  std::optional<std::int32_t> list_of(SuperblockId superblock) const;

 private:
  struct Link {
    std::int32_t list = -1, next = -1, previous = -1;
  };
  Link& link(std::int32_t superblock) { return links_[static_cast<std::size_t>(superblock)]; }
  const Link& link(SuperblockId superblock) const {
    return links_[static_cast<std::size_t>(index(superblock))];
  }

  std::vector<std::int32_t> fronts_;
  std::vector<std::int32_t> counts_;
  std::vector<Link> links_;
};

}  // namespace hyb
