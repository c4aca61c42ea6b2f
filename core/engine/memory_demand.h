#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/sequence.h"
#include "core/memory/memory.h"

namespace hyb {

/// What sequences are going to take from a pool beyond what they hold, in units of each view. An
/// estimate for deciding who starts; memory is had from Memory::reserve alone.
class MemoryDemand {
 public:
  explicit MemoryDemand(const MemoryPool& pool);

  /// Room for so many tokens more.
  MemoryDemand& add_growth(const Memory& memory, std::int32_t tokens);

  /// A running sequence gets through all tokens known of it, and takes a page more per group:
  /// starting another one that soon sends it away is wasted work.
  MemoryDemand& add_running(const Sequence& sequence);

  /// One starts that shares the pages of its first `resumable` tokens.
  MemoryDemand& add_newcomer(std::int32_t tokens, std::int32_t resumable);

  /// Slots for the snapshots of those that run: a snapshot takes the live slot, and the sequence
  /// goes on in another one.
  MemoryDemand& add_slots(std::int32_t slots);

  /// Whether what is free now will do.
  bool fits() const;

  /// The view that lacks most superblocks; whoever gives it one helps.
  ViewId driest() const;

  /// Whether it would do if nobody but these held anything.
  bool fits_beside(std::span<Sequence* const> running) const;

 private:
  std::int64_t& units(ViewId view) { return units_[static_cast<std::size_t>(index(view))]; }
  void add_pages(std::int32_t group, std::int32_t length, std::int64_t pages);

  const MemoryPool* pool_;
  std::vector<std::int64_t> units_;
};

}  // namespace hyb
