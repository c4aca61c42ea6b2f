#pragma once

#include <unordered_set>

#include "core/replay/block_lru.h"
#include "core/replay/cache_policy.h"

namespace hyb {

/// "vLLM+" of the Marconi paper: every block of so many tokens has keys, values and a state, and
/// they come and go together, least recently used first. As in the paper's simulation others make
/// room for a request and then it is inserted whole, also where it alone is over the budget.
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

}  // namespace hyb
