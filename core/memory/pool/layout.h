#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// A sequence of any length.
inline constexpr std::int32_t length_endless = std::numeric_limits<std::int32_t>::max();

/// Positions [first, last) of a sequence.
struct PositionRange {
  std::int32_t first, last;
};

/// Says what one kind of layer memory keeps of a sequence's positions in pages. Pools, prefix tree,
/// tiers and session files know kinds through this interface alone, so a new kind is one class.
/// Layers that share another layer's keys and values have no memory of their own and no kind.
class MemoryKind {
 public:
  virtual ~MemoryKind() = default;

  /// One word for tables and files, such as "full".
  virtual std::string_view name() const = 0;

  /// Returns whether the token at position `length`, or a later one, may read any of these earlier
  /// positions. Once false for a length it is false for every greater one. So a page may be freed
  /// when this is false for all its positions, and a prefix of `length` tokens can be resumed when
  /// every page for which it is true is there. Ranges become unneeded in the order of their
  /// positions, except those that never do.
  virtual bool needs(PositionRange positions, std::int32_t length) const = 0;
};

/// Every earlier position.
class FullAttention final : public MemoryKind {
 public:
  std::string_view name() const override { return "full"; }
  bool needs(PositionRange positions, std::int32_t length) const override;
};

/// The last `window` positions, the token's own included.
class SlidingWindow final : public MemoryKind {
 public:
  explicit SlidingWindow(std::int32_t window) : window_(window) {}
  std::string_view name() const override { return "window"; }
  bool needs(PositionRange positions, std::int32_t length) const override;
  std::int32_t window() const { return window_; }

 private:
  std::int32_t window_;
};

/// The positions from the last multiple of `chunk` on, the token's own included.
class ChunkedAttention final : public MemoryKind {
 public:
  explicit ChunkedAttention(std::int32_t chunk) : chunk_(chunk) {}
  std::string_view name() const override { return "chunked"; }
  bool needs(PositionRange positions, std::int32_t length) const override;
  std::int32_t chunk() const { return chunk_; }

 private:
  std::int32_t chunk_;
};

/// Layers of one kind that share page numbers: page i of the group is page i in the arena of each
/// of its layers.
struct PageGroup {
  const MemoryKind* kind;
  std::size_t page_bytes;  ///< of page_tokens tokens, all layers of the group
  std::int32_t pages_per_superblock;
};

/// All slots have one size: the recurrent layers of a sequence together. Where there are some, a
/// prefix can be resumed only where a snapshot was taken.
struct SlotShape {
  std::size_t bytes = 0;
  std::int32_t per_superblock = 0;  ///< 0: there are none
  /// Part of bytes, at the end: unused bytes between two slots. Their number follows from the size
  /// of the pool, not from the model.
  std::size_t padding_bytes = 0;
};

/// Says how the physical memory of a model's sequences is cut. Memory is `superblocks` pieces of
/// equal size. Each can be seen through one view per page group, one of slots, one of packed
/// snapshots and one of rings; through view v superblock b is the units [b * n, (b + 1) * n), n
/// units per superblock. One view of it is live at a time: its owner. So memory moves between pages
/// and slots by a change of owner, and the number of a unit gives its superblock.
struct MemoryLayout {
  std::int32_t page_tokens = 0;  ///< 0: no attention, no groups
  std::vector<PageGroup> groups;
  SlotShape slots;   ///< live slots and exact snapshots
  SlotShape packed;  ///< int8 snapshots
  /// Per running sequence that has drafts: what drafts of a step feed to the recurrent layers, kept
  /// until it is known which of them stay. None where there are no recurrent layers, or no drafts.
  SlotShape rings = {};
  std::int32_t ring_tokens = 0;  ///< entries of a ring: most drafts of a span
  std::size_t superblock_bytes = 0;
  std::int32_t superblocks = 0;

  /// Empty: any superblock can have any owner. Otherwise the number of superblocks that each view
  /// owns, in the order of ViewId, permanently (mode `flat`, with_state_share()).
  std::vector<std::int32_t> fixed_superblocks;

  /// Returns whether a sequence at `length` holds the page of the group: its kind needs it, or it
  /// is partly filled. A partly filled page is held whatever the kind says, so kinds decide about
  /// pages with all positions below the length, and a shorter prefix can be resumed.
  bool holds_page(std::int32_t group, std::int32_t page, std::int32_t length) const;

  std::int32_t group_count() const { return static_cast<std::int32_t>(groups.size()); }
  bool has_slots() const { return slots.per_superblock > 0; }
  bool has_rings() const { return rings.per_superblock > 0; }

  std::int32_t views() const { return group_count() + 3; }
  ViewId slot_view() const { return ViewId{group_count()}; }
  ViewId packed_view() const { return ViewId{group_count() + 1}; }
  ViewId ring_view() const { return ViewId{group_count() + 2}; }
  std::int32_t units_per_superblock(ViewId view) const;
  std::size_t unit_bytes(ViewId view) const;
  /// The used bytes at its front: the same in pools of any size.
  std::size_t content_bytes(ViewId view) const;
  std::size_t bytes() const { return static_cast<std::size_t>(superblocks) * superblock_bytes; }
  /// Returns what it takes to hold all units that can be in use at once.
  std::size_t store_bytes() const;
  /// The view's first unit where superblocks are fixed; else 0.
  std::int32_t first_unit(ViewId view) const;
};

/// Fixed numbers of pages of full attention and of slots: one superblock each.
struct FlatSizes {
  std::int32_t pages = 0, slots = 0;
  std::int32_t page_tokens = 0;  ///< 0: no attention
  std::size_t page_bytes = 1, slot_bytes = 1;
};
MemoryLayout flat_layout(const FlatSizes& sizes);

/// The same memory with a fixed ratio, as systems with two pools have it: of the superblocks this
/// share is for slots, the rest for pages, at least one each, and none changes its owner. Throws
/// Error(usage) where the share is not between 0 and 1, and where there are not two views to
/// divide them between: one group of pages, and slots.
MemoryLayout with_state_share(MemoryLayout layout, double share);

/// A view as input of the search for a superblock's size. A page group has one plane per layer; a
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
/// fits.
SuperblockPlan plan_superblocks(std::span<const ViewRequest> views, std::size_t handle_bytes,
                                std::size_t bytes_max, double waste_max = 0.03);

/// Returns whether a kind never frees a page.
bool keeps_everything(const MemoryKind& kind);

/// Returns whether every checkpoint can be resumed at every position before its end: all kinds keep
/// everything and there are no recurrent layers. Then no snapshots are needed in between.
bool resumes_anywhere(const MemoryLayout& layout);

/// The functions below compute what sequences take of a layout's memory, without a pool.

/// Pages that hold `tokens` tokens in a group that keeps all of them.
std::int32_t pages_for(const MemoryLayout& layout, std::int32_t tokens);

/// Counts the pages of a group that a sequence at `length` holds.
std::int32_t pages_held(const MemoryLayout& layout, std::int32_t group, std::int32_t length);

/// The pages of a group that a sequence at `length` holds, in ascending order.
std::vector<std::int32_t> held_pages(const MemoryLayout& layout, std::int32_t group,
                                     std::int32_t length);

/// The most that it holds on the way there, in chunks of `chunk_tokens`. May be up to two too many
/// where chunks are smaller than pages.
std::int32_t pages_peak(const MemoryLayout& layout, std::int32_t group, std::int32_t length,
                        std::int32_t chunk_tokens);

/// The used bytes of a checkpoint at `length`: what goes to another memory that has none of it.
/// Without the pages that it holds of its first `shared` tokens, where they are full.
std::size_t content_bytes_held(const MemoryLayout& layout, std::int32_t length,
                               std::int32_t shared = 0);

/// Returns the most bytes of a sequence on its way to `length`: pages by kind, and one slot.
std::size_t bytes_peak(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens);

/// Returns whether a sequence can reach `length` when it has all memory to itself but that of
/// `superblocks_lacking`, where none are fixed.
bool can_ever_hold(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens,
                   std::int32_t superblocks_lacking = 0);

/// The greatest such length up to `most`; 0: none.
std::int32_t length_max(const MemoryLayout& layout, std::int32_t most, std::int32_t chunk_tokens);

/// Returns how many sequences at `length` fit at once, with one slot to spare: a checkpoint hands
/// its slot over while the next one is taken. At most `most`.
std::int32_t sequences_at_once(const MemoryLayout& layout, std::int32_t length, std::int32_t most);

}  // namespace hyb
