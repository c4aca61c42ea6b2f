#pragma once

#include "core/memory/pool/layout.h"

namespace hyb::perf {

/// Nemotron-3-Nano's superblocks with f32 states: 48 MiB are 512 pages of 16 tokens, one slot, or 3
/// packed snapshots.
inline MemoryLayout nemotron_layout(std::int32_t superblocks) {
  static const FullAttention full;
  MemoryLayout layout;
  layout.page_tokens = 16;
  layout.groups = {{.kind = &full, .page_bytes = 96 << 10, .pages_per_superblock = 512}};
  layout.slots = {.bytes = 48U << 20, .per_superblock = 1};
  layout.packed = {.bytes = 13U << 20, .per_superblock = 3};
  layout.superblock_bytes = 48U << 20;
  layout.superblocks = superblocks;
  return layout;
}

}  // namespace hyb::perf
