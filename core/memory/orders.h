#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/pending_bytes.h"

namespace hyb {

/// A page, slot, packed snapshot or ring to another one of the same view.
struct UnitCopy {
  ViewId view;
  std::int32_t from, to;
};
/// Exact to packed (int8) and back. Packing loses precision, unpacking does not.
struct PackSlot {
  SlotId from;
  PackedId to;
};
struct UnpackSlot {
  PackedId from;
  SlotId to;
};
/// Applies entries [0, entries) of a ring to a state: `to` gets the state of `from` after these
/// tokens, in all recurrent layers, exactly as a span of them would leave it. `from` may be `to`.
struct AdvanceSlot {
  SlotId from;
  RingId ring;
  std::int32_t entries;
  SlotId to;
};
/// From now on the superblock is used through `to` (no_view: free). Its bytes are not kept. `from`
/// is no_view when it had no owner, or an unknown one after a failed step.
struct ChangeOwner {
  SuperblockId superblock;
  ViewId from, to;
  bool is_ahead = false;  ///< nothing is in it yet: its memory may be faulted in while steps run
};

/// core decides with indices and counts and moves no bytes: copies are orders that ride in the next
/// step and are carried out before its spans, in the order given. So a page or slot may be reused
/// as soon as it is released.
using Order = std::variant<UnitCopy, PackSlot, UnpackSlot, ChangeOwner, AdvanceSlot>;

/// One group's pages of one sequence: entry i holds positions [i * page_tokens, (i + 1) *
/// page_tokens); no_page where the page is no longer needed.
using PageTable = std::vector<PageId>;

/// Room in the machine's memory for a unit's bytes, from where a device copies them while steps
/// run. When this is destroyed the copy has ended, and the room is free again.
class StagedWrite {
 public:
  virtual ~StagedWrite() = default;
  /// Filled before start(), on any thread.
  virtual std::span<std::byte> room() = 0;
  /// Between steps: from now on the bytes are copied to the unit, which no step names and no order
  /// moves until is_done(). Once.
  virtual void start(ViewId view, std::int32_t unit) = 0;
  /// After start(): the unit has its bytes, for all steps from now on. Throws Error(runtime) when
  /// the copy failed, as wait() does.
  virtual bool is_done() = 0;
  virtual void wait() = 0;
};

/// The bytes of a pool's units, as of the last step: for tiers and session files. Called between
/// steps only; `bytes` has the unit_bytes of the view.
class UnitBytes {
 public:
  virtual ~UnitBytes() = default;
  virtual void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) = 0;
  virtual void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) = 0;

  /// Read and write as read() and write() do with a CPU's memory, on any thread, beside steps that
  /// do not name the unit and leave its superblock the owner. By default the same.
  virtual void read_beside(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
    read(view, unit, bytes);
  }
  virtual void write_beside(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
    write(view, unit, bytes);
  }

  /// Does what read() does, but steps go on meanwhile: the unit may have other bytes as soon as
  /// this returns. What it returns is destroyed before this object. Null: there is no room for this
  /// copy now; or never, as by default.
  virtual std::unique_ptr<PendingBytes> start_read(ViewId, std::int32_t) { return nullptr; }

  /// Returns whether units are written beside steps, too: then there is room for the largest unit
  /// while nothing else holds any.
  virtual bool can_stage_writes() const { return false; }
  /// Room for `bytes` bytes, the unit_bytes of a view; destroyed before this object. Null: there is
  /// none now.
  virtual std::unique_ptr<StagedWrite> stage_write(std::size_t /*bytes*/) { return nullptr; }
};

}  // namespace hyb
