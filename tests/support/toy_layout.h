#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/memory/pool/layout.h"

namespace hyb::testing {

// Short enough for keys of a few pages to pass a window's end and a chunk's, none of which is a
// page's (of 4 tokens).

inline const FullAttention full;
inline const SlidingWindow window(9);
inline const ChunkedAttention chunked(10);

/// Superblocks of `superblock_bytes`, with as many pages of each group as fit into one.
inline MemoryLayout page_layout(std::vector<PageGroup> groups, std::int32_t page_tokens,
                                std::size_t superblock_bytes, std::int32_t superblocks) {
  MemoryLayout layout;
  layout.page_tokens = page_tokens;
  layout.groups = std::move(groups);
  for (PageGroup& group : layout.groups) {
    group.pages_per_superblock = static_cast<std::int32_t>(superblock_bytes / group.page_bytes);
  }
  layout.superblock_bytes = superblock_bytes;
  layout.superblocks = superblocks;
  return layout;
}

}  // namespace hyb::testing
