#pragma once

#include <cstdint>

#include "core/memory/pool/memory_pool.h"

namespace hyb {

inline std::int64_t slots_free(const MemoryPool& pool) {
  return pool.superblocks().units_free(pool.layout().slot_view());
}

/// Those that change of owner would give included; 0 where there is no such group.
inline std::int64_t pages_free(const MemoryPool& pool, std::int32_t group = 0) {
  return group < pool.layout().group_count() ? pool.superblocks().units_free(ViewId{group}) : 0;
}

}  // namespace hyb
