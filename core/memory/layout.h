#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/kind.h"

namespace hyb {

/// Layers of one kind whose pages are handed out together: page i of the group is page i in the
/// arena of each of its layers.
struct PageGroup {
  const MemoryKind* kind;  ///< not recurrent
  std::size_t page_bytes;  ///< of page_tokens tokens, all layers of the group
  std::int32_t pages_per_superblock;
};

/// All slots have one size: the recurrent layers of a sequence together.
struct SlotShape {
  std::size_t bytes = 0;
  std::int32_t per_superblock = 0;  ///< 0: there are none
  /// Of bytes, at the end: they lie between two slots and mean nothing. How many there are follows
  /// from the size of the pool, not from the model.
  std::size_t padding_bytes = 0;
};

/// How the physical memory of a model's sequences is cut. Memory is `superblocks` pieces of equal
/// size. Each can be seen through one view per page group, one of slots and one of packed
/// snapshots; through view v superblock b is the units [b * n, (b + 1) * n), n units per
/// superblock. One view of it is live at a time: its owner. So memory moves between pages and slots
/// by a change of owner, and the number of a unit tells its superblock.
struct MemoryLayout {
  std::int32_t page_tokens = 0;  ///< 0: no attention, no groups
  std::vector<PageGroup> groups;
  SlotShape slots;   ///< live slots and exact snapshots
  SlotShape packed;  ///< int8 snapshots
  std::size_t superblock_bytes = 0;
  std::int32_t superblocks = 0;

  /// Empty: any superblock can have any owner. Else views own so many superblocks each, in the
  /// order of ViewId, for ever (mode `flat`).
  std::vector<std::int32_t> fixed_superblocks;

  /// Whether a sequence at `length` holds the page of the group: its kind needs it, or it is filled
  /// in part. That one stays whatever the kind says, so that every page that is held has all its
  /// positions below the length, and a shorter prefix can be resumed from it.
  bool holds_page(std::int32_t group, std::int32_t page, std::int32_t length) const;

  std::int32_t views() const { return static_cast<std::int32_t>(groups.size()) + 2; }
  ViewId slot_view() const { return ViewId{static_cast<std::int32_t>(groups.size())}; }
  ViewId packed_view() const { return ViewId{static_cast<std::int32_t>(groups.size()) + 1}; }
  std::int32_t units_per_superblock(ViewId view) const;
  std::size_t unit_bytes(ViewId view) const;
  /// Of these the ones at the front that mean something: the same in pools of any size.
  std::size_t content_bytes(ViewId view) const;
  std::size_t bytes() const { return static_cast<std::size_t>(superblocks) * superblock_bytes; }
  /// What it takes to back all units that can be in use at once.
  std::size_t store_bytes() const;
  /// The view's first unit where superblocks are fixed; else 0.
  std::int32_t first_unit(ViewId view) const;
};

/// So many pages of full attention and so many slots, for ever: one superblock each.
struct FlatSizes {
  std::int32_t pages = 0, slots = 0;
  std::int32_t page_tokens = 0;  ///< 0: no attention
  std::size_t page_bytes = 1, slot_bytes = 1;
};
MemoryLayout flat_layout(const FlatSizes& sizes);

/// A view as the search for a superblock's size sees it. A page group has one plane per layer; a
/// page of plane i takes plane_unit_bytes[i]. Slots have one plane, and their stride may be
/// stretched by a few percent to fill the superblock.
struct ViewRequest {
  std::vector<std::size_t> plane_unit_bytes;
  bool may_stretch = false;
};

struct ViewPlan {
  std::int32_t units_per_superblock;
  std::vector<std::size_t> plane_bytes;  ///< of a superblock in each plane, whole handles
  std::size_t unit_stride;               ///< of a view with one plane that may stretch; else 0
};

/// The smallest superblock, in handles, of which no view wastes more than `waste_max`.
struct SuperblockPlan {
  std::size_t handle_bytes;
  std::int32_t handles;  ///< per superblock
  std::vector<ViewPlan> views;

  std::size_t superblock_bytes() const { return handle_bytes * static_cast<std::size_t>(handles); }
};

/// In every plane unit u lies at u * its unit bytes (or stride), so the part of a superblock in a
/// plane is a whole number of handles and of units. Strides are multiples of 64 bytes. A view
/// without planes has 0 units. Throws Error(memory) when no superblock of up to `bytes_max` bytes
/// will do.
SuperblockPlan plan_superblocks(std::span<const ViewRequest> views, std::size_t handle_bytes,
                                std::size_t bytes_max, double waste_max = 0.03);

}  // namespace hyb
