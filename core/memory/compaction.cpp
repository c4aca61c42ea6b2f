// Empties superblocks by copies, so that a dry view gets one that another view uses sparsely.
#include <optional>

#include "core/base/error.h"
#include "core/memory/memory.h"

namespace hyb {
namespace {

/// Where the units of one superblock went.
class Moves {
 public:
  Moves(SuperblockId superblock, std::int32_t units)
      : first_(index(superblock) * units), to_(static_cast<std::size_t>(units), -1) {}

  void add(std::int32_t from, std::int32_t to) {
    to_[static_cast<std::size_t>(from - first_)] = to;
  }

  template <IdType Id>
  void apply(Id& id) const {
    // Ids below the first wrap round to large numbers.
    const auto at = static_cast<std::uint32_t>(index(id)) - static_cast<std::uint32_t>(first_);
    if (at < to_.size()) id = Id{to_[at]};
  }

 private:
  std::int32_t first_;
  std::vector<std::int32_t> to_;
};

}  // namespace

/// The superblock that costs the fewest bytes to empty becomes free. False: no other view has room
/// for one of its own in the others, or this step has copied enough.
///
/// A view that was dry has no such room before it gave back a superblock's worth of units, so
/// memory does not go to and fro.
bool MemoryPool::compact_for(ViewId dry) {
  std::optional<SuperblockId> sparsest;
  std::size_t bytes_least = 0;
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    if (ViewId{view} == dry) continue;
    const std::optional<SuperblockId> found = superblocks_.sparsest(ViewId{view});
    if (!found) continue;
    const std::size_t bytes = static_cast<std::size_t>(superblocks_.units_used_of(*found)) *
                              layout().unit_bytes(ViewId{view});
    if (bytes > compaction_bytes_left_ || (sparsest && bytes >= bytes_least)) continue;
    sparsest = found;
    bytes_least = bytes;
  }
  if (!sparsest) return false;
  compaction_bytes_left_ -= bytes_least;
  empty(*sparsest);
  return true;
}

void MemoryPool::empty(SuperblockId superblock) {
  const ViewId view = superblocks_.owner(superblock);
  Moves moves(superblock, layout().units_per_superblock(view));
  superblocks_.close(superblock);
  std::int32_t last = -1;
  for (const std::int32_t from : superblocks_.units_in_use(superblock)) {
    const std::optional<TakenUnit> taken = superblocks_.take(view, last);
    require(taken && !taken->owner_changed, "memory: the other superblocks have room");
    last = taken->unit;
    moves.add(from, taken->unit);
    order_copy(view, from, taken->unit);
    for (std::int32_t users = superblocks_.users(view, from); users > 0; --users) {
      if (users > 1) superblocks_.share(view, taken->unit);
      superblocks_.drop(view, from);
    }
    ++compacted_units_;
  }
  for (Memory* memory : memories_.all()) {
    if (view == layout().slot_view()) {
      moves.apply(memory->read_slot_);
      moves.apply(memory->write_slot_);
      for (Memory::ReservedCut& cut : memory->cuts_) moves.apply(cut.next_slot);
    } else if (view != layout().packed_view()) {
      for (PageId& page : memory->tables_[static_cast<std::size_t>(index(view))]) moves.apply(page);
    }
  }
  for (Checkpoint* checkpoint : checkpoints_.all()) {
    if (view == layout().slot_view()) {
      moves.apply(checkpoint->slot_);
    } else if (view == layout().packed_view()) {
      moves.apply(checkpoint->packed_);
    } else {
      for (PageId& page : checkpoint->tables_[static_cast<std::size_t>(index(view))]) {
        moves.apply(page);
      }
    }
  }
}

void MemoryPool::order_copy(ViewId view, std::int32_t from, std::int32_t to) {
  if (view == layout().slot_view()) {
    orders_.push_back(SlotCopy{.from = SlotId{from}, .to = SlotId{to}});
  } else if (view == layout().packed_view()) {
    orders_.push_back(PackedCopy{.from = PackedId{from}, .to = PackedId{to}});
  } else {
    orders_.push_back(PageCopy{.group = index(view), .from = PageId{from}, .to = PageId{to}});
  }
}

}  // namespace hyb
