#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory/layout.h"

namespace hyb {

/// What sequences take of a layout's memory, counted and not tried.

/// Pages that so many tokens need in a group that keeps all.
std::int32_t pages_for(const MemoryLayout& layout, std::int32_t tokens);

/// Of a group's pages, those that a sequence at `length` holds.
std::int32_t pages_held(const MemoryLayout& layout, std::int32_t group, std::int32_t length);

/// The most that it holds on the way there, in chunks of so many tokens. Up to two more may be said
/// where chunks are smaller than pages.
std::int32_t pages_peak(const MemoryLayout& layout, std::int32_t group, std::int32_t length,
                        std::int32_t chunk_tokens);

/// Bytes of a sequence at `length`: pages by kind, and one slot. At its peak on the way there.
std::size_t bytes_held(const MemoryLayout& layout, std::int32_t length);
std::size_t bytes_peak(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens);

/// Whether a sequence can get there when it has all memory to itself.
bool can_ever_hold(const MemoryLayout& layout, std::int32_t length, std::int32_t chunk_tokens);

/// The greatest length up to `most` for which that is so; 0: none.
std::int32_t length_max(const MemoryLayout& layout, std::int32_t most, std::int32_t chunk_tokens);

/// How many sequences at `length` fit at once, and one slot more: a checkpoint hands its slot over
/// while the next one is taken. At most `most`.
std::int32_t sequences_at_once(const MemoryLayout& layout, std::int32_t length, std::int32_t most);

}  // namespace hyb
