#pragma once

#include <cstdint>
#include <span>

#include "core/memory/prefix/snapshot_io.h"
#include "core/memory/tier/tier_index.h"

namespace hyb::app {

/// A host tier without bytes: the index of the engine's tiers, with their worth, admission and
/// order of removal. Copies take no time, and what a tier holds besides snapshots is not counted.
class HostTier {
 public:
  /// The layout's kinds outlive this.
  HostTier(const MemoryLayout& layout, std::int64_t budget_bytes, const PrefillCost& cost)
      : layout_(layout), index_(layout), budget_bytes_(budget_bytes), cost_(cost) {}

  /// A snapshot that is about to be evicted.
  void keep(std::span<const TokenId> key, const Snapshot& snapshot);

  /// Puts the deepest snapshot that the prompt starts with into the tree, where it is deeper than
  /// `resumable` and faster to copy than to compute; returns its length, 0: there is none.
  std::int32_t fetch(SnapshotIo& snapshot_io, std::span<const TokenId> prompt,
                     std::int32_t resumable);

  std::int64_t bytes() const { return bytes_; }  ///< held now

 private:
  std::int64_t bytes_of(std::span<StoredUnit* const> units) const;
  void rank(TierEntry& entry);
  bool make_room(TierEntry& entry);
  void remove(TierEntry& entry);

  MemoryLayout layout_;
  TierIndex index_;
  std::int64_t budget_bytes_, bytes_ = 0;
  PrefillCost cost_;
  double level_ = 0;  ///< of Greedy-Dual
};

}  // namespace hyb::app
