#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/memory/layout.h"
#include "kernels/arena/superblock_map.h"
#include "models/geometry.h"
#include "models/memory_layout.h"

namespace hyb::models {

/// A model's memory as core decides with it and as the store lays it out. Views stand in the order
/// of ViewId: page groups, slots, packed snapshots.
struct StoreLayout {
  MemoryLayout layout;
  kernels::SuperblockShape superblocks;
  /// Of each group its layers by attention ordinal (index in Geometry::pages); the i-th is plane i
  /// of the group's view.
  std::vector<std::vector<std::size_t>> layers;
  SnapshotLayout snapshot;  ///< empty: no packed snapshots
};

/// How the store lays out a model's memory. The kinds of `memory` outlive the result.
StoreLayout store_layout(const ModelMemoryLayout& memory);

/// So many pages and slots of a model, for ever (mode `flat`): every attention layer keeps all
/// positions, snapshots are exact. Handles are multiples of handle_bytes_min.
StoreLayout flat_memory(const Geometry& geometry, std::int32_t pages, std::int32_t slots,
                        std::size_t handle_bytes_min = 4096);

}  // namespace hyb::models
