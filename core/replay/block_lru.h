#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// Hashes of the first 1, 2, ... whole blocks of a key: a block is known by all tokens up to its
/// end.
std::vector<std::uint64_t> block_hashes(std::span<const TokenId> key, std::int32_t block_tokens);

/// Entries of different sizes under one budget. The least recently used goes first; of those used
/// at the same time the one of greatest depth.
class BlockLru {
 public:
  enum class Kind : std::uint8_t { kv, state };
  struct Key {
    std::uint64_t hash;
    Kind kind;
    auto operator<=>(const Key&) const = default;
  };

  explicit BlockLru(std::int64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  bool has(const Key& key) const { return entries_.contains(key); }

  /// Used now; makes the entry when there is none. True: it is new.
  bool touch(const Key& key, std::int32_t depth, std::int64_t bytes, std::int64_t now);

  /// A later request found it. True: for the first time.
  bool reuse(const Key& key);

  /// Gives up entries last used before `time` until the rest fits or none is left. Returns how
  /// many.
  std::int64_t shrink(std::int64_t time);

  std::int64_t bytes(Kind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }

 private:
  struct Entry {
    std::int64_t time;
    std::int32_t depth;
    std::int64_t bytes;
    bool reused = false;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return key.hash * 2 + static_cast<std::size_t>(key.kind);
    }
  };
  struct Age {
    std::int64_t time;
    std::int32_t depth;
    Key key;
    bool operator<(const Age& other) const {
      if (time != other.time) return time < other.time;
      if (depth != other.depth) return depth > other.depth;
      return key > other.key;
    }
  };

  std::int64_t budget_bytes_;
  std::int64_t bytes_[2] = {0, 0};
  std::unordered_map<Key, Entry, Hash> entries_;
  std::set<Age> ages_;
};

}  // namespace hyb
