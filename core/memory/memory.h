#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/runner.h"

namespace hyb {

class MemoryPool;

/// A resumable point of a sequence: shared full pages, a private copy of the partly filled last
/// one, and a snapshot of the recurrent state, all at length(). Never written again, so it stays
/// good while the sequence goes on or ends. Move-only; the destructor gives everything back. The
/// pool must outlive it. It holds only what the steps so far have written, but the copy of the last
/// page is made by the next step: when that step fails, checkpoints taken since the step before are
/// void.
class Checkpoint {
 public:
  Checkpoint() = default;
  Checkpoint(Checkpoint&& other) noexcept { swap(other); }
  Checkpoint& operator=(Checkpoint&& other) noexcept;
  ~Checkpoint();

  std::int32_t length() const { return length_; }
  std::span<const PageId> pages() const { return pages_; }
  SlotId slot() const { return slot_; }

 private:
  friend class Memory;
  friend class MemoryPool;
  void swap(Checkpoint& other) noexcept;

  MemoryPool* pool_ = nullptr;
  std::vector<PageId> pages_;
  SlotId slot_ = no_slot;
  std::int32_t length_ = 0;
};

/// The whole memory of one running sequence: page table, slots, length. Five verbs and no others:
/// reserve, keep, checkpoint, resume (MemoryPool), release (the destructor). Move-only; the pool
/// must outlive it.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  /// Tokens that both halves stand at.
  std::int32_t length() const { return length_; }

  /// Room for `tokens` more. False: the pool is dry, a normal outcome; what was taken stays.
  bool reserve(std::int32_t tokens);

  /// Of the last step's tokens the first `tokens` stand; the rest never happened. From now on the
  /// sequence reads the slot that the step wrote.
  void keep(std::int32_t tokens);

  /// A resumable point at length(), between steps. The live slot becomes the snapshot and the
  /// sequence goes on in another one, which its next step writes: no state is copied. Empty when no
  /// slot or page is free: a checkpoint is never worth failing for. A sequence that still reads a
  /// snapshot shares that one and needs no slot.
  std::optional<Checkpoint> checkpoint();

  std::span<const PageId> pages() const { return pages_; }
  SlotId read_slot() const { return read_slot_; }
  SlotId write_slot() const { return write_slot_; }

 private:
  friend class MemoryPool;
  void swap(Memory& other) noexcept;

  MemoryPool* pool_ = nullptr;
  std::vector<PageId> pages_;
  SlotId read_slot_ = no_slot;
  SlotId write_slot_ = no_slot;
  std::int32_t length_ = 0;
};

/// Fixed pools of pages and slots, handed out by index. A model without attention (page_tokens 0)
/// or without recurrent layers (slots 0) has only the other half.
class MemoryPool {
 public:
  explicit MemoryPool(const Capacity& capacity);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// The memory of a fresh sequence: nothing reserved, state all zeros. Empty: no slot is free.
  std::optional<Memory> start();

  /// A sequence that stands at the checkpoint. Empty when no slot or page is free.
  std::optional<Memory> resume(const Checkpoint& checkpoint);

  /// Copies that the next step has to carry out, in this order.
  std::vector<Order> take_orders();

  std::int32_t pages_free() const { return static_cast<std::int32_t>(free_pages_.size()); }
  std::int32_t slots_free() const { return static_cast<std::int32_t>(free_slots_.size()); }
  std::int32_t pages_total() const { return static_cast<std::int32_t>(page_users_.size()); }
  std::int32_t slots_total() const { return static_cast<std::int32_t>(slot_users_.size()); }
  std::int32_t page_tokens() const { return page_tokens_; }  ///< 0: no attention, no pages

  /// Pages that so many tokens need.
  std::int32_t pages_for(std::int32_t tokens) const;

  /// Throws when a page or slot is both free and used, or counted twice: our own bug.
  void audit() const;

  /// The same, and that these are all who hold pages and slots: nothing leaked, nothing shared by
  /// accident.
  void audit(std::span<const Memory* const> memories,
             std::span<const Checkpoint* const> checkpoints) const;

 private:
  friend class Memory;
  friend class Checkpoint;
  /// A page table for a second reader of the first `length` tokens of `pages`: full pages are
  /// shared, the partial one becomes a copy by order. False, and nothing taken: no page is free.
  bool share_prefix(std::span<const PageId> pages, std::int32_t length, std::vector<PageId>& copy);

  // A page may be shared by several checkpoints and sequences; a snapshot by its checkpoint and the
  // sequences that have yet to read it.
  std::optional<PageId> take_page();
  std::optional<SlotId> take_slot();
  void share(PageId page);
  void share(SlotId slot);
  void drop(PageId page) noexcept;
  void drop(SlotId slot) noexcept;

  std::int32_t page_tokens_;
  std::vector<std::int32_t> page_users_;
  std::vector<std::int32_t> slot_users_;
  std::vector<PageId> free_pages_;
  std::vector<SlotId> free_slots_;
  std::vector<Order> orders_;
};

}  // namespace hyb
