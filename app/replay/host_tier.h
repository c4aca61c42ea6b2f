#pragma once

#include <cstdint>
#include <span>

#include "core/memory/prefix/snapshot_io.h"
#include "core/memory/tier/tier_index.h"

namespace hyb::app {

/// A host tier without bytes: the index of the engine's tiers, whose copies take no time. Snapshots
/// are counted in whole sectors, as there, and nothing else that a tier holds.
class HostTier {
 public:
  /// The layout's kinds outlive this.
  HostTier(const MemoryLayout& layout, std::uint64_t budget_bytes, const PrefillCost& cost)
      : index_(layout, {.budget_bytes = budget_bytes,
                        .index_bytes_max = SIZE_MAX,
                        .cost = cost,
                        .bytes_per_second = host_tier_bytes_per_second}) {}

  /// A snapshot that is about to be evicted.
  void keep(std::span<const TokenId> key, const Snapshot& snapshot);

  /// Puts the deepest snapshot that the prompt starts with into the tree, where it is deeper than
  /// `resumable` and faster to copy than to compute; returns its length, 0: there is none.
  std::int32_t fetch(SnapshotIo& snapshot_io, std::span<const TokenId> prompt,
                     std::int32_t resumable);

  std::uint64_t bytes() const { return index_.bytes_used(); }  ///< held now

 private:
  TierIndex index_;
};

}  // namespace hyb::app
