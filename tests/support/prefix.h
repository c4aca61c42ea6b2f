#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb::testing {

using Key = std::vector<TokenId>;

/// "abc" as tokens 'a', 'b', 'c'.
inline Key key_of(std::string_view text) {
  Key key;
  for (const char letter : text) key.push_back(TokenId{letter});
  return key;
}

inline std::int32_t length_of(const Key& key) { return static_cast<std::int32_t>(key.size()); }

/// A key of up to `length_max` tokens that often shares a prefix with one of `keys`.
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

/// The memory of a toy model: pages of 4 tokens in superblocks of 8 pages, 2 slots or 8 packed
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

/// Extends a sequence by `tokens`; the pool has room for it.
inline void go_on(Memory& memory, std::int32_t tokens) {
  REQUIRE(memory.reserve(tokens));
  memory.keep(tokens);
}

/// A sequence of `tokens` tokens; the pool has room for it.
inline Memory ran(MemoryPool& pool, std::int32_t tokens) {
  std::optional<Memory> memory = pool.start();
  REQUIRE(memory);
  go_on(*memory, tokens);
  return std::move(*memory);
}

inline Checkpoint checkpoint_at(MemoryPool& pool, std::int32_t tokens) {
  std::optional<Checkpoint> checkpoint = ran(pool, tokens).final_checkpoint();
  REQUIRE(checkpoint);
  return std::move(*checkpoint);
}

/// A cache and a pool that serve requests one at a time.
struct PrefixServer {
  explicit PrefixServer(const ToyShape& shape, PrefixCacheOptions options = {})
      : pool(toy_layout(shape)), cache(pool, lenient(options)) {}

  static PrefixCacheOptions lenient(PrefixCacheOptions options) {
    options.branch_tokens_min = 1;
    return options;
  }

  /// Room for a running sequence: whatever must go, goes.
  bool advance(Memory& memory, std::int32_t length, const Snapshot* keep = nullptr) {
    while (!memory.reserve(length - memory.length())) {
      if (!cache.evict(keep)) return false;
    }
    memory.keep(length - memory.length());
    (void)pool.take_orders();
    return true;
  }

  /// Runs a prompt and its answer. Returns the prompt tokens that were not run, -1: no memory.
  std::int32_t serve(const Key& prompt, const Key& answer,
                     const std::vector<std::int32_t>& message_ends = {}) {
    Lookup lookup = cache.look_up(prompt);
    std::optional<Memory> memory = cache.resume(lookup);
    while (!memory) {
      if (!cache.evict(lookup.snapshot) && !cache.evict()) return -1;
      lookup = cache.look_up(prompt);
      memory = cache.resume(lookup);
    }
    const std::int32_t resumed = memory->length();
    REQUIRE(resumed == lookup.resumable);
    for (const Cut& cut : cache.cuts(lookup, prompt, message_ends)) {
      REQUIRE(cut.length > memory->length());
      REQUIRE(cut.length < length_of(prompt));
      if (!advance(*memory, cut.length)) return -1;
      cache.publish(prompt, *memory, cut.place);
    }
    Key key = prompt;
    key.insert(key.end(), answer.begin(), answer.end());
    if (!advance(*memory, length_of(key))) return -1;
    cache.publish_final(key, std::move(*memory));
    cache.audit();
    const auto checkpoints = cache.checkpoints();
    pool.audit({}, checkpoints);
    return resumed;
  }

  MemoryPool pool;
  PrefixCache cache;
};

}  // namespace hyb::testing
