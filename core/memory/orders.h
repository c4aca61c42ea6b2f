#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// core decides with indices and counts and moves no bytes: copies are orders that ride in the next
/// step and are carried out before its spans, in the order given. So a page or slot may be handed
/// out again the moment it is released.
struct PageCopy {
  std::int32_t group;
  PageId from, to;
};
struct SlotCopy {
  SlotId from, to;
};
/// Exact to packed and back: the int8 snapshots. Packing loses precision, unpacking none.
struct PackSlot {
  SlotId from;
  PackedId to;
};
struct UnpackSlot {
  PackedId from;
  SlotId to;
};
struct PackedCopy {
  PackedId from, to;
};
/// From here on the superblock is seen through `to` (no_view: free). Nothing is kept of its bytes.
/// `from` is no_view when it was nobody's, or when nobody knows whose it is after a failed step.
struct ChangeOwner {
  SuperblockId superblock;
  ViewId from, to;
};
using Order = std::variant<PageCopy, SlotCopy, PackSlot, UnpackSlot, PackedCopy, ChangeOwner>;

/// One group's pages of one sequence: entry i holds positions [i * page_tokens, (i + 1) *
/// page_tokens); no_page where they fell out of reach.
using PageTable = std::vector<PageId>;

/// The bytes of the units that a pool hands out, as of the last step: for tiers and session files.
/// Called between steps only; `bytes` has the unit_bytes of the view.
class UnitBytes {
 public:
  virtual ~UnitBytes() = default;
  virtual void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) = 0;
  virtual void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) = 0;
};

}  // namespace hyb
