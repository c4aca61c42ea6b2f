#pragma once

#include <cstdint>

#include "core/memory/pool/memory_pool.h"

namespace hyb::testing {

/// The meaning of Checkpoint::resumable_length(), position by position: whether every kind of the
/// model can go on from the first `length` tokens of the checkpoint.
inline bool can_resume(const MemoryPool& pool, const Checkpoint& checkpoint, std::int32_t length) {
  if (length <= 0 || length > checkpoint.length()) return false;
  if (length == checkpoint.length()) return true;
  if (pool.layout().has_slots()) return false;
  for (std::int32_t group = 0; group < pool.layout().group_count(); ++group) {
    const PageTable& table = checkpoint.tables()[static_cast<std::size_t>(group)];
    for (std::int32_t page = 0; page < pages_for(pool.layout(), length); ++page) {
      const bool is_missing = table[static_cast<std::size_t>(page)] == no_page;
      if (is_missing && pool.layout().holds_page(group, page, length)) return false;
    }
  }
  return true;
}

}  // namespace hyb::testing
