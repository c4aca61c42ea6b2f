#pragma once

#include <cstdint>

#include "core/memory/layout.h"
#include "core/memory/memory.h"

namespace hyb {

/// The deepest position up to `limit` at which every kind of the model can go on from the first
/// tokens of the checkpoint; 0: none. With recurrent layers only its own length is one.
std::int32_t resumable_length(const MemoryLayout& layout, const Checkpoint& checkpoint,
                              std::int32_t limit);

/// Whether a kind never frees a page.
bool keeps_everything(const MemoryKind& kind);

/// Whether every checkpoint can be resumed at every position before its end: all kinds keep
/// everything and there are no recurrent layers. Then snapshots need not be placed.
bool resumes_anywhere(const MemoryLayout& layout);

}  // namespace hyb
