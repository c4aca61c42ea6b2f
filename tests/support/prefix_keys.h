#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/memory.h"

namespace hyb::testing {

using Key = std::vector<TokenId>;

/// "abc" as tokens 'a', 'b', 'c'.
inline Key key_of(std::string_view text) {
  Key key;
  for (const char letter : text) key.push_back(TokenId{letter});
  return key;
}

inline std::int32_t length_of(const Key& key) { return static_cast<std::int32_t>(key.size()); }

/// A key of up to `length_max` tokens that often begins as one of `keys`.
inline Key random_key(std::mt19937& random, const std::vector<Key>& keys, int length_max) {
  const auto below = [&](std::size_t bound) { return random() % bound; };
  Key key;
  if (!keys.empty() && below(4) != 0) {
    key = keys[below(keys.size())];
    if (below(3) != 0) key.resize(below(key.size() + 1));
  }
  for (std::size_t more = below(12); more > 0; --more) {
    key.push_back(TokenId{static_cast<std::int32_t>(below(5))});
  }
  key.resize(std::min(key.size(), static_cast<std::size_t>(length_max)));
  return key;
}

/// Which kinds a toy model has: pages of 4 tokens in superblocks of 8 pages, 2 slots or 8 packed
/// snapshots.
struct ToyShape {
  std::vector<const MemoryKind*> kinds;
  bool recurrent = true;
  std::int32_t superblocks = 64;
};

inline MemoryLayout toy_layout(const ToyShape& shape) {
  MemoryLayout layout;
  layout.page_tokens = shape.kinds.empty() ? 0 : 4;
  for (const MemoryKind* kind : shape.kinds) {
    layout.groups.push_back({.kind = kind, .page_bytes = 64, .pages_per_superblock = 8});
  }
  if (shape.recurrent) {
    layout.slots = {.bytes = 256, .per_superblock = 2};
    layout.packed = {.bytes = 64, .per_superblock = 8};
  }
  layout.superblock_bytes = 512;
  layout.superblocks = shape.superblocks;
  return layout;
}

/// A sequence that goes on by so many tokens; the pool has room for it.
inline void go_on(Memory& memory, std::int32_t tokens) {
  REQUIRE(memory.reserve(tokens));
  memory.keep(tokens);
}

/// A sequence that has run so many tokens; the pool has room for it.
inline Memory ran(MemoryPool& pool, std::int32_t tokens) {
  std::optional<Memory> memory = pool.start();
  REQUIRE(memory);
  go_on(*memory, tokens);
  return std::move(*memory);
}

inline Checkpoint checkpoint_at(MemoryPool& pool, std::int32_t tokens) {
  std::optional<Checkpoint> checkpoint = ran(pool, tokens).conclude();
  REQUIRE(checkpoint);
  return std::move(*checkpoint);
}

}  // namespace hyb::testing
