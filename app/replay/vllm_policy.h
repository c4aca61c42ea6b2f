#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "app/replay/cache_policy.h"
#include "core/base/ids.h"

namespace hyb::app {

/// Hashes of the first 1, 2, ... whole blocks of a key: a block is known by all tokens up to its
/// end.
std::vector<std::uint64_t> block_hashes(std::span<const TokenId> key, std::int32_t block_tokens);

/// Entries of different sizes under one budget. The least recently used is evicted first; among
/// those used at the same time the one of greatest depth.
class BlockLru {
 public:
  enum class Kind : std::uint8_t { kv, state, window };
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

  /// Evicts entries last used before `time` until the rest fits or none is left. Returns their
  /// number.
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
      return key.hash * 4 + static_cast<std::size_t>(key.kind);
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
  std::int64_t bytes_[3] = {0, 0, 0};
  std::unordered_map<Key, Entry, Hash> entries_;
  std::set<Age> ages_;
};

/// "vLLM+" of the Marconi paper: every block of `block_tokens` tokens has keys, values and a state,
/// which are kept and evicted together, least recently used first. As in the paper's simulation
/// others are evicted for a request, which is then inserted whole, even where it alone exceeds the
/// budget.
class VllmPlusPolicy final : public CachePolicy {
 public:
  VllmPlusPolicy(const ReplayShape& shape, const PolicyOptions& options);

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  std::int32_t block_tokens_;
  std::int64_t kv_bytes_, state_bytes_;  ///< of a block
  BlockLru lru_;
  std::unordered_set<std::uint64_t> resumed_;  ///< blocks whose state was used
  std::int64_t now_ = 0;
  CacheCounters counters_;
};

/// Prefix reuse of hybrid models in vLLM as it ships (mode `align`), with the pages of its pool
/// counted without their padding. Keys and values are held in large blocks; states are kept at
/// block ends: at the last one of the prompt (less the token to draw from) and of the turn, and
/// where keys and values matched deeper than states did. Both kinds age in one LRU; of a state only
/// the use counts, of keys and values every pass.
///
/// Layers with a window have blocks of their own in the same pool. A hit needs those that hold the
/// last window before it; blocks that fall out of the window are given back while the request
/// runs, so they age before its others.
class VllmPolicy final : public CachePolicy {
 public:
  /// Throws Error(usage) for layers of more than one reach besides full attention, and for chunks:
  /// what vLLM does with them is not simulated.
  VllmPolicy(const ReplayShape& shape, const PolicyOptions& options);

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  using Hashes = std::span<const std::uint64_t>;

  /// The deepest hit of at most `matched` blocks that has all else that it needs.
  std::int32_t deepest_hit(Hashes hashes, std::int32_t matched) const;
  void touch_windows(Hashes hashes, std::int32_t hit, std::int32_t length);
  void touch_state(std::uint64_t hash, std::int32_t depth);

  bool has_state_;
  std::int32_t block_tokens_;
  std::int64_t kv_bytes_, state_bytes_;  ///< of a block, of a state
  std::int32_t window_ = 0;              ///< 0: no layers with windows
  std::int64_t window_bytes_ = 0;        ///< of a block of them
  BlockLru lru_;
  std::int64_t now_ = 0;
  CacheCounters counters_;
};

/// Tokens in a block of vLLM's mode `align`: as many, in multiples of 16, as make the keys and
/// values of one layer no smaller than the state of one layer. 16 where one of both is missing.
std::int32_t aligned_block_tokens(const ReplayShape& shape);

}  // namespace hyb::app
