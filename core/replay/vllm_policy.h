#pragma once

#include "core/replay/block_lru.h"
#include "core/replay/cache_policy.h"

namespace hyb {

/// Prefix reuse of hybrid models in vLLM as it ships (mode `align`), with the pages of its pool
/// counted without their padding. Keys and values are held in large blocks; states stand at block
/// ends: at the last one of the prompt (less the token to draw from) and of the turn, and where
/// keys and values matched deeper than states did. Both kinds age in one LRU; of a state only the
/// use counts, of keys and values every pass.
class VllmPolicy final : public CachePolicy {
 public:
  VllmPolicy(const ReplayShape& shape, const PolicyOptions& options);

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  void touch_state(std::uint64_t hash, std::int32_t depth);

  bool has_state_;
  std::int32_t block_tokens_;
  std::int64_t kv_bytes_, state_bytes_;  ///< of a block, of a state
  BlockLru lru_;
  std::int64_t now_ = 0;
  CacheCounters counters_;
};

/// Tokens in a block of vLLM's mode `align`: as many, in multiples of 16, as make the keys and
/// values of one layer no smaller than the state of one layer. 16 where one of both is missing.
std::int32_t aligned_block_tokens(const ReplayShape& shape);

}  // namespace hyb
