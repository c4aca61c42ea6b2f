#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/layout.h"
#include "core/memory/memory.h"

namespace hyb {

/// A piece of a checkpoint that has bytes.
struct CheckpointUnit {
  ViewId view;
  std::int32_t page;  ///< of the sequence, for a view of pages; else 0
  std::int32_t unit;  ///< of the view
};

/// The pages of a group that a sequence at `length` holds, in ascending order.
std::vector<std::int32_t> held_pages(const MemoryLayout& layout, std::int32_t group,
                                     std::int32_t length);

/// All pieces of a checkpoint: the pages of each group in order, then the slot or packed snapshot.
/// Two checkpoints of the same length and precision have the same list but for the units. Units are
/// good until the next call that takes memory.
std::vector<CheckpointUnit> units_of(const Checkpoint& checkpoint, const MemoryLayout& layout);

}  // namespace hyb
