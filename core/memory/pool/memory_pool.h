#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/orders.h"
#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory.h"
#include "core/memory/pool/order_units.h"
#include "core/memory/pool/superblocks.h"

namespace hyb {

/// Units of one kind in use.
struct UnitUsage {
  std::string_view kind;  ///< of pages: the name of their group's kind
  std::int64_t units = 0;
  std::size_t bytes = 0;
};

/// Bytes of the memory by owner. total() is the budget, to the byte.
struct PoolUsage {
  std::vector<UnitUsage> pages;     ///< by group
  UnitUsage live_slots;             ///< a sequence reads or writes them
  UnitUsage snapshot_slots;         ///< only checkpoints hold them
  UnitUsage packed;                 ///< int8 snapshots
  UnitUsage rings;                  ///< of sequences that have drafts
  std::size_t idle_bytes = 0;       ///< free units in superblocks that are in use
  std::size_t free_bytes = 0;       ///< free superblocks
  std::size_t remainder_bytes = 0;  ///< of superblocks in use, what their view has no unit for

  std::int32_t superblocks = 0, superblocks_free = 0;
  std::int32_t superblocks_idle = 0;  ///< of the free ones: with memory, which give_back() releases
  std::int32_t superblocks_uncommitted =
      0;                             ///< of the free ones: the device has no memory for them
  std::int64_t owner_changes = 0;    ///< superblocks that moved from one view to another
  std::int64_t compacted_units = 0;  ///< copied to empty a superblock

  std::size_t page_bytes() const;  ///< of all groups
  std::size_t total() const;
};

/// A checkpoint that has the first `tokens` tokens of another one.
struct SharedPrefix {
  const Checkpoint* from = nullptr;  ///< null: there is none
  std::int32_t tokens = 0;
};

/// The memory of all sequences of a model: allocates pages, slots, packed snapshots and
/// rings from one budget of superblocks. Orders that a call makes ride in the next step.
class MemoryPool {
 public:
  /// `orders_fixed_owners`: where superblocks are fixed, the runner does not know it: their owners
  /// are ordered at the start.
  explicit MemoryPool(MemoryLayout layout, bool orders_fixed_owners = false);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  const MemoryLayout& layout() const { return superblocks_.layout(); }
  /// Returns what each view has free, idle and used. give_back() releases the idle ones.
  const Superblocks& superblocks() const { return superblocks_; }

  /// The memory of a new sequence: nothing reserved, state all zeros. Empty: no slot is free.
  std::optional<Memory> start();

  /// A sequence at the first `tokens` tokens of the checkpoint, by default all, where it is
  /// resumable (resumable_length). Full pages are shared; a partly filled last one becomes a copy
  /// by order. Empty, and nothing taken, when no slot or page is free.
  std::optional<Memory> resume(const Checkpoint& checkpoint,
                               std::optional<std::int32_t> tokens = {});

  /// A checkpoint to be filled from outside (disk tier, session file): pages for exactly the
  /// positions that the kinds need at `length`, and a slot or packed snapshot. The caller has all
  /// orders carried out first (by a step without spans), then fills the units through
  /// UnitBytes::write before anything resumes from it. Full pages inside the shared prefix are
  /// shared where the other checkpoint has them. Empty, and nothing taken: the pool is dry.
  std::optional<Checkpoint> allocate_empty(std::int32_t length, Precision precision,
                                           const SharedPrefix& prefix = {});

  /// A sequence that goes on from an exact checkpoint which is its own: pages and slot become the
  /// sequence's, nothing is copied and nothing taken. No page that is partly filled is shared.
  Memory take_over(Checkpoint checkpoint);

  /// Another checkpoint of the same units.
  Checkpoint share(const Checkpoint& checkpoint);
  /// Returns whether a sequence goes on in the last page of the checkpoint, which is partly filled:
  /// steps write it, after the checkpoint's own tokens.
  bool is_written(const Checkpoint& checkpoint) const;

  /// While a step that names the memory runs beside others: its units are not moved, and after a
  /// failed step of another lane their superblocks keep their owners. The memory is neither changed
  /// nor released until it is unpinned.
  /// The same of a checkpoint, while its units are written beside steps.
  template <typename Held>
  void pin(const Held& held);
  template <typename Held>
  void unpin(const Held& held);

  /// Orders that the next step has to carry out, in this order.
  std::vector<Order> take_orders();
  /// The same into a list that is reused, without an allocation.
  void take_orders(std::vector<Order>& orders);
  std::span<const Order> orders() const { return orders_; }

  /// After a failed step it is unknown which orders were carried out: open ones are dropped and the
  /// owners of all superblocks that are not pinned are ordered again. Memories and checkpoints that
  /// the failed step was to fill are void, and where superblocks were compacted all others are too,
  /// but for those that are pinned: release them first.
  void resync_owners();

  /// The same for a step of which this is known: with no other one was it under way in its lane,
  /// and only memories that are released now, or that are in its orders, were written by it. What
  /// its orders were to fill, and what open orders fill from that.
  UnitSet void_units(std::span<const Order> failed) const;
  /// Returns whether one of the units is among those that it holds.
  template <typename Held>
  bool holds(const Held& held, const UnitSet& units) const;
  /// The failed step's changes of owners are ordered again, before the orders that are open. What
  /// holds void units was released.
  void order_owners_again(std::span<const Order> failed);

  /// Orders that release the memory of up to `superblocks_max` free superblocks to the machine.
  /// Returns their number.
  std::int32_t give_back(std::int32_t superblocks_max);

  /// Orders memory ahead of need, so that it can be faulted in before a step waits for it: free
  /// superblocks without owner go to the view of slots until it has free ones for `states` slots,
  /// and to the view of packed snapshots likewise. They stay free for every view, and
  /// superblocks().idle() counts them. Returns their number.
  std::int32_t order_ahead(std::int32_t states);

  /// Called before a superblock without owner gets one: whether the device has memory for it or,
  /// where it `may_create` some, can allocate it now. Where it cannot, the pool does not use that
  /// superblock and tries again some steps later. Without this function all superblocks have
  /// memory.
  using Backing = std::function<bool(SuperblockId, bool may_create)>;
  void set_backing(Backing backing) { backing_ = std::move(backing); }

  /// Gives up to `superblocks_max` free superblocks that have memory up for good, and orders that
  /// their memory is released to the device, which needs it elsewhere. Returns their number.
  std::int32_t shrink(std::int32_t superblocks_max);

  /// Memory of superblocks that are uncommitted is requested from the device again when needed.
  void retry_uncommitted() { superblocks_.retry_uncommitted(); }
  /// Returns whether a sequence could reach `length` with all the memory that the device has now.
  bool can_hold_now(std::int32_t length) const {
    return hyb::can_ever_hold(layout(), length, 1, superblocks_.uncommitted());
  }

  /// Most bytes that one step may copy for compaction, by default those of one superblock; 0: none.
  void limit_compaction(std::size_t bytes_per_step);

  /// Empties a superblock by copies, so that the dry view finds a free one; taking memory from a
  /// dry view does this by itself. False: no other view has room for one of its superblocks in its
  /// others, or this step has copied enough.
  bool compact_for(ViewId dry);

  /// Without superblocks that were given up for good.
  bool can_ever_hold(std::int32_t length, std::int32_t chunk_tokens) const {
    return hyb::can_ever_hold(layout(), length, chunk_tokens, superblocks_.given_up());
  }

  /// Nothing is allocated.
  bool all_free() const;
  PoolUsage usage() const;

  /// Throws when a superblock has two owners, a unit is counted wrongly or held without need, or
  /// the bytes by owner are not the budget: our own bug.
  void audit() const;

  /// The same, and that nothing else holds memory: nothing leaked.
  void audit(std::span<const Memory* const> memories,
             std::span<const Checkpoint* const> checkpoints) const;

 private:
  friend class Memory;
  friend class Checkpoint;

  /// A device without free memory is retried after this many steps, then twice as many, ...
  static constexpr std::int32_t steps_between_asks_min = 16, steps_between_asks_max = 1024;

  template <typename Held, typename Action>
  void for_units(const Held& held, const Action& action) const;

  void empty(SuperblockId superblock);

  // A page may be shared by several checkpoints and sequences; a snapshot by its checkpoint and the
  // sequences that have yet to read it.
  std::optional<std::int32_t> take(ViewId view, std::int32_t after = -1);
  bool is_backed(SuperblockId superblock, bool may_create);
  std::optional<PageId> take_page(std::int32_t group, const PageTable& table);
  template <typename Id>
  std::optional<Id> take_unit(ViewId view, std::int32_t after = -1) {
    const std::optional<std::int32_t> unit = take(view, after);
    return unit ? std::optional(Id{*unit}) : std::nullopt;
  }
  // Nothing is done for an id that stands for none.
  void share(ViewId view, std::int32_t unit) {
    if (unit >= 0) superblocks_.share(view, unit);
  }
  void drop(ViewId view, std::int32_t unit) noexcept {
    if (unit >= 0) superblocks_.drop(view, unit);
  }
  void drop(std::int32_t group, PageTable& table) noexcept;

  Superblocks superblocks_;
  Registry<Memory> memories_;
  Registry<Checkpoint> checkpoints_;
  std::vector<Order> orders_;
  bool orders_fixed_owners_;
  Backing backing_;
  std::int32_t steps_to_ask_ = 0;  ///< until memory for uncommitted superblocks is requested again
  std::int32_t steps_between_asks_ = steps_between_asks_min;
  std::size_t compaction_bytes_max_ = 0, compaction_bytes_left_ = 0;
  std::int64_t owner_changes_ = 0;
  std::int64_t compacted_units_ = 0;
};

}  // namespace hyb
