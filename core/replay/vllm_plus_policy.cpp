#include "core/replay/vllm_plus_policy.h"

namespace hyb {

VllmPlusPolicy::VllmPlusPolicy(const ReplayShape& shape, const PolicyOptions& options)
    : block_tokens_(options.block_tokens),
      kv_bytes_(shape.kv_bytes_per_token * block_tokens_),
      state_bytes_(shape.snapshot_bytes(options.snapshots)),
      lru_(options.budget_bytes) {}

Served VllmPlusPolicy::serve(const RequestTokens& tokens) {
  const std::vector<std::uint64_t> hashes = block_hashes(tokens.all, block_tokens_);
  const std::int32_t prompt_blocks = (tokens.prompt_length - 1) / block_tokens_;
  std::int32_t hit = 0;
  while (hit < prompt_blocks &&
         lru_.has({hashes[static_cast<std::size_t>(hit)], BlockLru::Kind::kv})) {
    ++hit;
  }
  ++now_;
  std::int32_t depth = 0;
  for (const std::uint64_t hash : hashes) {
    const BlockLru::Key key = {hash, BlockLru::Kind::kv};
    if (depth++ < hit && lru_.reuse(key)) counters_.kv_tokens_reused += block_tokens_;
    if (depth == hit && state_bytes_ > 0 && resumed_.insert(hash).second) {
      ++counters_.snapshots_reused;
    }
    if (!lru_.touch(key, depth, kv_bytes_ + state_bytes_, now_)) continue;
    resumed_.erase(hash);
    counters_.kv_tokens_created += block_tokens_;
    counters_.snapshots_created += state_bytes_ > 0 ? 1 : 0;
  }
  counters_.evictions += lru_.shrink(now_);
  return {.reused = hit * block_tokens_, .matched = hit * block_tokens_};
}

CacheCounters VllmPlusPolicy::counters() const {
  CacheCounters counters = counters_;
  const std::int64_t bytes = lru_.bytes(BlockLru::Kind::kv);
  if (bytes == 0) return counters;
  const std::int64_t blocks = bytes / (kv_bytes_ + state_bytes_);
  counters.kv_bytes = blocks * kv_bytes_;
  counters.snapshot_bytes = blocks * state_bytes_;
  return counters;
}

}  // namespace hyb
