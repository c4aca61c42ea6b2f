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

/// Fixed pools, cut for a number of sequences of a number of tokens each.
struct FlatPools {
  std::int32_t sequences = 1;
  std::int32_t tokens = 0;
};

struct MemoryLayoutOptions {
  std::size_t pool_bytes = 0;    ///< for pages, slots and packed snapshots together
  bool packed = false;           ///< with a view for int8 snapshots
  std::int32_t ring_tokens = 0;  ///< most drafts of a span: with a view for rings; 0: no drafts

  /// Mode `flat`: pools never change, every attention layer keeps all positions, no packed
  /// snapshots.
  std::optional<FlatPools> flat = {};

  /// Physical memory is allocated in multiples of a size: on the CPU a page of the system, on CUDA
  /// 2 MiB. Of handles that do equally well the largest are chosen.
  std::size_t handle_bytes_min = 4096;
  std::size_t handle_bytes_max = std::size_t{2} << 20;

  /// Most mappings of the planes of all superblocks. Systems limit them (65,530 on Linux), and each
  /// costs a call at the start: superblocks are made larger rather than more numerous.
  std::size_t mappings_max = 16384;

  /// Most driver calls that create all handles and map them into all views, at the start: on a card
  /// they take from 5 to 200 us each (kernels::driver_call_seconds). Superblocks and handles are
  /// made larger for it, as long as the pool can be cut. On the CPU handles are numbers.
  std::size_t driver_calls_max = SIZE_MAX;
};

/// A model's memory: what core decides with, and how the store lays it out. Views are in the order
/// of ViewId: page groups, slots, packed snapshots, rings.
struct StoreLayout {
  MemoryLayout layout;
  kernels::SuperblockShape superblocks;
  /// Lists each group's layers by attention ordinal (index in Geometry::pages); the i-th is plane i
  /// of the group's view.
  std::vector<std::vector<std::size_t>> layers;
  SnapshotLayout snapshot;  ///< bytes 0: no packed snapshots
  RingLayout ring;          ///< bytes 0: no rings
};

/// The same of a pool that was cut for a model. A StoreLayout copied from it refers to its kinds.
struct ModelMemoryLayout : StoreLayout {
  std::vector<std::unique_ptr<MemoryKind>> kinds;  ///< the groups point to them
  std::size_t slot_bytes = 0;                      ///< without padding; layout.slots.bytes has it
  SuperblockPlan superblock;

  /// Bytes of memory that a unit takes: its share of a superblock, including what its view cannot
  /// use.
  double bytes_held(ViewId view) const;

  /// The largest share of a superblock that one of the views cannot use.
  double waste() const;
};

/// Makes the kind of memory that layers of this reach keep.
std::unique_ptr<MemoryKind> kind_of(const Reach& reach);

/// Counts for each view the bytes at the end of its units that only the draft layer reads or
/// writes. Empty: the plan has none.
std::vector<std::size_t> draft_unit_bytes(const Plan& plan, const Geometry& geometry,
                                          const ModelMemoryLayout& memory);

/// The number of page groups in a layout of the model.
std::size_t page_groups(const Geometry& geometry, bool is_flat);

/// Layers of one reach form a page group, in the order of their first layers. Of all superblocks
/// that waste at most 3 % in every view, the one that leaves the fewest bytes idle is chosen: what
/// views cannot use, and half a superblock per view that is not full yet. Up to 25 % may be wasted
/// only where no such superblock fits the pool, or where with packed snapshots less than 16 do. Two
/// slots fit, because a checkpoint gives up its slot only after the next one is allocated; in modes
/// other than `flat` one slot is enough where there is no room for two: then only finished
/// sequences leave an exact snapshot. Throws Error(memory) with the numbers when pool_bytes is
/// less.
ModelMemoryLayout memory_layout_of(const Geometry& geometry, const MemoryLayoutOptions& options);

struct FlatRings {
  std::int32_t count = 0;
  std::int32_t tokens = 0;  ///< most drafts of a span
};

/// A fixed number of pages and slots of a model (mode `flat`), and of rings where it has recurrent
/// layers: every attention layer keeps all positions, snapshots are exact. Handles are multiples of
/// handle_bytes_min.
StoreLayout flat_memory(const Geometry& geometry, std::int32_t pages, std::int32_t slots,
                        std::size_t handle_bytes_min = 4096, FlatRings rings = {});

}  // namespace hyb::models
