#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/sequence.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

/// Estimates what sequences will take from a pool beyond what they hold, in units of each view. An
/// estimate for admission; only Memory::reserve takes memory.
class MemoryDemand {
 public:
  explicit MemoryDemand(const MemoryPool& pool);

  /// Room for `tokens` more.
  MemoryDemand& add_growth(const Memory& memory, std::int32_t tokens);

  /// A running sequence runs all its known tokens, and one more page per group: starting another
  /// one that soon preempts it is wasted work.
  MemoryDemand& add_running(const Sequence& sequence);

  /// A sequence starts that shares the pages of its first `resumable` tokens.
  MemoryDemand& add_newcomer(std::int32_t tokens, std::int32_t resumable);

  MemoryDemand& add_ring();

  /// A branch of `tokens` tokens.
  MemoryDemand& add_branch(const Memory& memory, std::int32_t tokens);

  /// Slots for the snapshots of running sequences: a snapshot takes the live slot, and the sequence
  /// continues in another one.
  MemoryDemand& add_slots(std::int32_t slots);

  /// Returns whether what is free now is enough.
  bool fits() const;

  /// The view that lacks the most superblocks.
  ViewId driest() const;

  /// Returns whether it would fit if nothing but these held memory.
  bool fits_beside(std::span<Sequence* const> running) const;

 private:
  std::int64_t& units(ViewId view) { return units_[static_cast<std::size_t>(index(view))]; }
  void add_pages(std::int32_t group, std::int32_t length, std::int64_t pages);

  const MemoryPool* pool_;
  std::vector<std::int64_t> units_;
};

}  // namespace hyb
