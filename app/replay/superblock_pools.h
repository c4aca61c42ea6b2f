#pragma once

#include <cstdint>

#include "core/replay/shape.h"
#include "models/memory_layout.h"

namespace hyb::app {

/// The pools that the engine would cut from so many bytes for a model of this shape: pages of 16
/// tokens of all attention layers, slots, and packed snapshots where they are int8. The layers are
/// taken to be alike and to keep all positions. Throws Error(memory) with the numbers when the
/// bytes hold no sequence.
models::ModelMemoryLayout superblock_pools(const ReplayShape& shape, std::int64_t budget_bytes,
                                           SnapshotFormat snapshots);

}  // namespace hyb::app
