#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/orders.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// Knows the addresses of its members, also after they moved: each stores its index in the registry
/// and reports moves. Constant time per call.
template <typename Member>
class Registry {
 public:
  void add(Member& member) {
    member.registry_index_ = members_.size();
    members_.push_back(&member);
  }
  void remove(Member& member) noexcept {
    Member* const last = members_.back();
    last->registry_index_ = member.registry_index_;
    members_[member.registry_index_] = last;
    members_.pop_back();
  }
  /// The member has its registry_index_.
  void moved(Member& member) noexcept { members_[member.registry_index_] = &member; }

  const std::vector<Member*>& all() const { return members_; }

 private:
  std::vector<Member*> members_;
};

class MemoryPool;

enum class Precision : std::uint8_t { exact, int8 };

/// A resumable point of a sequence, all at length(): the pages that its kinds need there, shared,
/// and a snapshot of the recurrent state. Never written again, so it stays valid while the sequence
/// continues or ends: writes to a shared page are after length(). Move-only; the destructor
/// releases everything. The pool must outlive it. It holds what the steps so far have written; a
/// packed snapshot is made by the next step: when that step fails, checkpoints taken since the
/// previous step are void.
///
/// Ids are valid until the next call that takes memory: compaction may move pages and slots.
class Checkpoint {
 public:
  Checkpoint() = default;
  Checkpoint(Checkpoint&& other) noexcept { swap(other); }
  Checkpoint& operator=(Checkpoint&& other) noexcept;
  ~Checkpoint();

  std::int32_t length() const { return length_; }
  /// One per page group, pages_for(length()) entries each; no_page where the kind needs nothing.
  std::span<const PageTable> tables() const { return tables_; }
  SlotId slot() const { return slot_; }        ///< no_slot: packed, or no recurrent layers
  PackedId packed() const { return packed_; }  ///< no_packed: exact, or no recurrent layers
  Precision precision() const { return packed_ == no_packed ? Precision::exact : Precision::int8; }

  /// The deepest position up to `limit` at which every kind of the model can go on from the first
  /// tokens of the checkpoint; 0: none. With recurrent layers it is its own length or none.
  std::int32_t resumable_length(std::int32_t limit) const;

 private:
  friend class Memory;
  friend class MemoryPool;
  friend class Registry<Checkpoint>;
  explicit Checkpoint(MemoryPool& pool, std::int32_t length);
  void swap(Checkpoint& other) noexcept;

  MemoryPool* pool_ = nullptr;
  std::size_t registry_index_ = 0;
  std::vector<PageTable> tables_;
  SlotId slot_ = no_slot;
  PackedId packed_ = no_packed;
  std::int32_t length_ = 0;
};

/// The whole memory of one running sequence: page tables, slots, ring, length. Five verbs and no
/// others: reserve, keep, checkpoint, resume (MemoryPool), release (the destructor). Move-only; the
/// pool must outlive it. Ids are valid until the next call that takes memory, as a checkpoint's.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  /// Tokens in memory, the same for all kinds.
  std::int32_t length() const { return length_; }

  /// Length up to which pages are reserved.
  std::int32_t room() const;

  /// Reserves pages for `tokens` more. False: the pool is dry, a normal outcome; what was taken
  /// stays reserved.
  bool reserve(std::int32_t tokens);

  /// Has the next step leave its state at `length` tokens, too, in a slot of its own: the step runs
  /// in pieces, one up to each cut and one after the last. Cuts are reserved in ascending order
  /// from length() on. False: no slot is free.
  bool reserve_cut(std::int32_t length);
  std::int32_t cuts_reserved() const { return static_cast<std::int32_t>(cuts_.size()); }
  /// The next step runs in one piece.
  void drop_cuts();

  /// Takes a ring for drafts, where the layout has some; it is held until release_ring(). False: no
  /// ring is free.
  bool reserve_ring();
  /// Gives the ring back; what is in it is applied to the state by order first.
  void release_ring();

  /// Further drafts of the next step, instead of its own: a span of the same sequence that reads
  /// the same slot, ring entries and full pages, and writes pages and a ring of its own.
  struct Branch {
    std::vector<PageTable> tables;  ///< up to the first page that is written the sequence's own
    RingId ring = no_ring;          ///< no_ring: there are no rings
  };

  /// Takes what a branch of `tokens` tokens writes, the first of them the one that the sequence
  /// runs next; the known part of its first page is copied by order. Where there are recurrent
  /// layers the step then writes another slot than the one that all its branches read. Branches
  /// are held until keep() or drop_branches(). False, and nothing is taken: the pool is dry.
  bool reserve_branch(std::int32_t tokens);
  std::int32_t branches() const { return static_cast<std::int32_t>(branches_.size()); }
  const Branch& branch(std::int32_t index) const {
    return branches_.at(static_cast<std::size_t>(index));
  }
  /// The next step has no branches.
  void drop_branches();
  /// Keeps this branch of a step: its pages and its ring become the sequence's own. keep() comes
  /// next, and drops the others.
  void take_branch(std::int32_t index);

  /// Keeps the first `tokens` tokens of the last step, or of its next piece, and drops the rest.
  /// From now on the sequence reads the slot that was written after them: where the step had drafts
  /// after the first of them, in which case the last `drafts` tokens kept are in the ring alone
  /// until the next step, or an order, applies them. Pages that no kind needs any more are
  /// released.
  void keep(std::int32_t tokens, std::int32_t drafts = 0);

  /// A resumable point at length() > 0, between steps: what is in the ring is applied to the state
  /// first, by order. exact: the live slot becomes the snapshot
  /// and the sequence continues in another one, which its next step writes: no state is copied. A
  /// sequence that still reads an exact snapshot shares it and needs no slot. int8: the snapshot is
  /// packed by order. Pages are shared, the partly filled last one too. Empty when no slot or
  /// packed snapshot is free: no reason to fail.
  std::optional<Checkpoint> checkpoint(Precision precision = Precision::exact);

  /// The same at the end of a sequence, which it releases: an exact checkpoint takes the slot over
  /// and cannot fail.
  std::optional<Checkpoint> final_checkpoint(Precision precision = Precision::exact) &&;

  /// The pages alone of a checkpoint at length(), shared: for copies of them beside steps.
  Checkpoint shared_pages() const;

  /// Shares full pages of the first `tokens` tokens (up to length()) with the checkpoint where it
  /// has them too, and releases this sequence's own. Their bytes have to be equal. Between steps.
  /// Returns the number of pages.
  std::int64_t share_full_pages(const Checkpoint& other, std::int32_t tokens);

  /// One per page group, in the order of the layout.
  std::span<const PageTable> tables() const { return tables_; }
  SlotId read_slot() const { return read_slot_; }
  SlotId write_slot() const { return write_slot_; }
  RingId ring() const { return ring_; }  ///< no_ring: none was reserved
  /// Entries of the ring, from the first on, between the state of the read slot and length().
  std::int32_t ring_entries() const { return ring_entries_; }

  /// A part of the next step: the tokens from `begin` to the next cut, or to the step's end.
  struct Piece {
    std::int32_t begin;
    SlotId read_slot, write_slot;
  };
  /// The piece after the first `cuts` reserved cuts.
  Piece piece(std::int32_t cuts) const;

 private:
  friend class MemoryPool;
  friend class Registry<Memory>;
  struct ReservedCut {
    std::int32_t length;
    SlotId next_slot;  ///< written from there on
  };
  explicit Memory(MemoryPool& pool);
  void swap(Memory& other) noexcept;
  void give_back_unneeded(std::int32_t group);
  bool pack_into(Checkpoint& checkpoint) const;
  void apply_ring();
  std::size_t first_page_of_branches() const;
  bool take_branch_pages(std::int32_t tokens);
  bool take_branch_slot();
  void drop(Branch& branch) noexcept;
  void release_branches() noexcept;

  MemoryPool* pool_ = nullptr;
  std::size_t registry_index_ = 0;
  std::vector<PageTable> tables_;
  std::vector<std::int32_t> settled_;  ///< per group: pages before it are kept for good or released
  SlotId read_slot_ = no_slot;
  SlotId write_slot_ = no_slot;
  RingId ring_ = no_ring;
  std::int32_t ring_entries_ = 0;
  std::vector<Branch> branches_;
  bool has_branch_slot_ = false;  ///< the write slot was taken for branches alone
  std::vector<ReservedCut> cuts_;
  std::int32_t length_ = 0;
};

/// A page, slot or packed snapshot of a checkpoint.
struct CheckpointUnit {
  ViewId view;
  std::int32_t page;  ///< of the sequence, for a view of pages; else 0
  std::int32_t unit;  ///< of the view
};

/// All pieces of a checkpoint: the pages of each group in order, then the slot or packed snapshot.
/// Lists of checkpoints of equal length and precision differ in `unit` alone. Units are valid until
/// the next call that takes memory.
std::vector<CheckpointUnit> units_of(const Checkpoint& checkpoint, const MemoryLayout& layout);

}  // namespace hyb
