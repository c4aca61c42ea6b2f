#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/memory/pool/layout.h"
#include "kernels/arena/superblock_map.h"
#include "models/geometry.h"

namespace hyb::models {

/// Fixed pools, cut for so many sequences of so many tokens each.
struct FlatPools {
  std::int32_t sequences = 1;
  std::int32_t tokens = 0;
};

struct MemoryLayoutOptions {
  std::size_t pool_bytes = 0;  ///< for pages, slots and packed snapshots together
  bool packed = false;         ///< int8 snapshots have a view of their own

  /// Mode `flat`: pools never change, every attention layer keeps all positions, no packed
  /// snapshots.
  std::optional<FlatPools> flat;

  /// Physical memory comes in multiples of some size: on the CPU a page of the system, on CUDA 2
  /// MiB. Of handles that do equally well the largest are taken.
  std::size_t handle_bytes_min = 4096;
  std::size_t handle_bytes_max = std::size_t{2} << 20;

  /// Most pieces that the planes of all superblocks are mapped in. Systems bound them (65,530 on
  /// Linux), and each costs a call at the start: superblocks are made larger rather than more.
  std::size_t mappings_max = 16384;
};

/// A model's memory as core decides with it (`layout`) and as the bytes lie (`superblock`). Views
/// stand in the order of ViewId: page groups, slots, packed snapshots.
struct ModelMemoryLayout {
  std::vector<std::unique_ptr<MemoryKind>> kinds;  ///< of the groups, which point to them
  /// Of each group its layers by attention ordinal (index in Geometry::pages); the i-th is plane i
  /// of the group's view.
  std::vector<std::vector<std::size_t>> layers;
  std::size_t slot_bytes = 0;  ///< that a slot needs; layout.slots.bytes lie between two slots
  SnapshotLayout snapshot;     ///< bytes 0: no packed snapshots
  SuperblockPlan superblock;
  MemoryLayout layout;

  /// What a unit takes of the memory: its share of a superblock, what its view leaves over
  /// included.
  double bytes_held(ViewId view) const;

  /// The largest part of a superblock that one of the views cannot use.
  double waste() const;

  /// What the arena maps.
  kernels::SuperblockShape shape() const;
};

/// How many page groups a layout of the model has.
std::size_t page_groups(const Geometry& geometry, bool is_flat);

/// Layers of one reach form a page group, in the order of their first layers. Of all superblocks
/// that waste at most 3 % in every view the one is taken that leaves the fewest bytes idle: what
/// views cannot use, and half a superblock per view that is not full yet. Up to 25 % may be wasted
/// only where no such superblock fits the pool, or where with packed snapshots less than 16 do.
/// Two slots fit, because a checkpoint hands its slot over while the next one is taken; in modes
/// other than `flat` one does where there is no room for two: then only sequences that end leave an
/// exact snapshot. Throws Error(memory) with the numbers when pool_bytes holds less.
ModelMemoryLayout memory_layout_of(const Geometry& geometry, const MemoryLayoutOptions& options);

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
