#include "core/memory/superblock_lists.h"

#include "core/base/error.h"

namespace hyb {
namespace {

std::optional<SuperblockId> found(std::int32_t superblock) {
  if (superblock < 0) return std::nullopt;
  return SuperblockId{superblock};
}

}  // namespace

SuperblockLists::SuperblockLists(std::int32_t lists, std::int32_t superblocks)
    : fronts_(static_cast<std::size_t>(lists), -1),
      counts_(static_cast<std::size_t>(lists), 0),
      links_(static_cast<std::size_t>(superblocks)) {}

void SuperblockLists::push(std::int32_t list, SuperblockId superblock) {
  const std::int32_t at = index(superblock);
  require(link(at).list < 0, "memory: a superblock is in one list");
  std::int32_t& front = fronts_[static_cast<std::size_t>(list)];
  link(at) = {.list = list, .next = front, .previous = -1};
  if (front >= 0) link(front).previous = at;
  front = at;
  ++counts_[static_cast<std::size_t>(list)];
}

void SuperblockLists::remove(SuperblockId superblock) {
  Link& removed = link(index(superblock));
  if (removed.list < 0) return;
  if (removed.previous >= 0) {
    link(removed.previous).next = removed.next;
  } else {
    fronts_[static_cast<std::size_t>(removed.list)] = removed.next;
  }
  if (removed.next >= 0) link(removed.next).previous = removed.previous;
  --counts_[static_cast<std::size_t>(removed.list)];
  removed = {};
}

std::optional<SuperblockId> SuperblockLists::front(std::int32_t list) const {
  return found(fronts_[static_cast<std::size_t>(list)]);
}

std::optional<SuperblockId> SuperblockLists::next(SuperblockId superblock) const {
  return found(link(superblock).next);
}

std::optional<std::int32_t> SuperblockLists::list_of(SuperblockId superblock) const {
  if (link(superblock).list < 0) return std::nullopt;
  return link(superblock).list;
}

}  // namespace hyb
