#include "app/replay/vllm_policy.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::app {

std::vector<std::uint64_t> block_hashes(std::span<const TokenId> key, std::int32_t block_tokens) {
  std::vector<std::uint64_t> hashes;
  std::uint64_t hash = 0;
  std::int32_t filled = 0;
  for (const TokenId token : key) {
    hash = (hash ^ static_cast<std::uint64_t>(index(token))) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29;
    if (++filled < block_tokens) continue;
    hashes.push_back(hash);
    filled = 0;
  }
  return hashes;
}

bool BlockLru::touch(const Key& key, std::int32_t depth, std::int64_t bytes, std::int64_t now) {
  const auto [found, is_new] =
      entries_.try_emplace(key, Entry{.time = now, .depth = depth, .bytes = bytes});
  if (is_new) {
    bytes_[static_cast<std::size_t>(key.kind)] += bytes;
  } else {
    ages_.erase({found->second.time, depth, key});
    found->second.time = now;
  }
  ages_.insert({now, depth, key});
  return is_new;
}

bool BlockLru::reuse(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.reused) return false;
  return found->second.reused = true;
}

std::int64_t BlockLru::shrink(std::int64_t time) {
  std::int64_t count = 0;
  const auto bytes = [&] { return bytes_[0] + bytes_[1] + bytes_[2]; };
  for (; bytes() > budget_bytes_ && ages_.begin()->time < time; ++count) {
    const Key victim = ages_.begin()->key;
    ages_.erase(ages_.begin());
    const auto found = entries_.find(victim);
    bytes_[static_cast<std::size_t>(victim.kind)] -= found->second.bytes;
    entries_.erase(found);
  }
  return count;
}

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

std::int32_t aligned_block_tokens(const ReplayShape& shape) {
  constexpr std::int64_t alignment = 16;
  if (!shape.has_state() || shape.kv_bytes_per_token == 0) return alignment;
  const std::int64_t state = shape.state_bytes / shape.recurrent_layers;
  const std::int64_t kv =
      std::max<std::int64_t>(alignment * shape.kv_bytes_per_token / shape.attention_layers, 1);
  // No request fills a longer block, however much longer it is.
  return static_cast<std::int32_t>(
      std::min(alignment * ((state + kv - 1) / kv), TraceReader::request_tokens_max));
}

VllmPolicy::VllmPolicy(const ReplayShape& shape, const PolicyOptions& options)
    : has_state_(shape.has_state()),
      block_tokens_(aligned_block_tokens(shape)),
      kv_bytes_(shape.kv_bytes_per_token * block_tokens_),
      state_bytes_(shape.snapshot_bytes(options.snapshots)),
      lru_(options.budget_bytes) {
  if (shape.windows.empty()) return;
  const WindowLayers& layers = shape.windows.front();
  if (shape.windows.size() > 1 || layers.reach.kind != models::Reach::Kind::window) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: what vllm does with layers of more than one window, or with "
                            "chunks, is not simulated; lru and gd are",
                            shape.name));
  }
  window_ = layers.reach.tokens;
  window_bytes_ = layers.kv_bytes_per_token * block_tokens_;
}

void VllmPolicy::touch_state(std::uint64_t hash, std::int32_t depth) {
  if (lru_.touch({hash, BlockLru::Kind::state}, depth, state_bytes_, now_)) {
    ++counters_.snapshots_created;
  }
}

std::int32_t VllmPolicy::deepest_hit(Hashes hashes, std::int32_t matched) const {
  using enum BlockLru::Kind;
  const auto has = [&](std::int32_t depth, BlockLru::Kind kind) {
    return lru_.has({hashes[static_cast<std::size_t>(depth - 1)], kind});
  };
  const std::int32_t needed = window_ == 0 ? 0 : (window_ - 1 + block_tokens_ - 1) / block_tokens_;
  for (std::int32_t hit = matched; hit > 0; --hit) {
    if (has_state_ && !has(hit, state)) continue;
    std::int32_t first = hit + 1;
    while (first > 1 && first > hit + 1 - needed && has(first - 1, window)) --first;
    if (first == 1 || first == hit + 1 - needed) return hit;
  }
  return 0;
}

/// Blocks of a request of `length` tokens that went on at `hit`: those that the hit needed and
/// those that were written.
void VllmPolicy::touch_windows(Hashes hashes, std::int32_t hit, std::int32_t length) {
  if (window_ == 0) return;
  const auto first_read = [&](std::int32_t position) {
    return std::max(0, position - window_ + 1) / block_tokens_ + 1;
  };
  for (std::int32_t depth = first_read(hit * block_tokens_);
       depth <= static_cast<std::int32_t>(hashes.size()); ++depth) {
    const bool has_left = depth < first_read(length);
    lru_.touch({hashes[static_cast<std::size_t>(depth - 1)], BlockLru::Kind::window}, depth,
               window_bytes_, has_left ? now_ - 1 : now_);
  }
}

Served VllmPolicy::serve(const RequestTokens& tokens) {
  using enum BlockLru::Kind;
  const std::vector<std::uint64_t> hashes = block_hashes(tokens.all, block_tokens_);
  const auto hash_at = [&](std::int32_t depth) {
    return hashes[static_cast<std::size_t>(depth - 1)];
  };
  const auto blocks = static_cast<std::int32_t>(hashes.size());
  const std::int32_t prompt_blocks = (tokens.prompt_length - 1) / block_tokens_;
  std::int32_t matched = 0;
  while (matched < prompt_blocks && lru_.has({hash_at(matched + 1), kv})) ++matched;
  const std::int32_t hit = deepest_hit(hashes, matched);

  now_ += 2;  // the time before it is for what the request itself gives back
  for (std::int32_t depth = 1; depth <= blocks; ++depth) {
    if (depth <= hit && lru_.reuse({hash_at(depth), kv})) {
      counters_.kv_tokens_reused += block_tokens_;
    }
    if (lru_.touch({hash_at(depth), kv}, depth, kv_bytes_, now_)) {
      counters_.kv_tokens_created += block_tokens_;
    }
  }
  touch_windows(hashes, hit, tokens.length());
  if (has_state_) {
    if (hit > 0 && lru_.reuse({hash_at(hit), state})) ++counters_.snapshots_reused;
    if (hit > 0) touch_state(hash_at(hit), hit);
    for (const std::int32_t depth : {matched, prompt_blocks, blocks}) {
      if (depth > hit) touch_state(hash_at(depth), depth);
    }
  }
  counters_.evictions += lru_.shrink(now_ + 1);
  return {.reused = hit * block_tokens_, .matched = matched * block_tokens_};
}

CacheCounters VllmPolicy::counters() const {
  CacheCounters counters = counters_;
  counters.kv_bytes = lru_.bytes(BlockLru::Kind::kv) + lru_.bytes(BlockLru::Kind::window);
  counters.snapshot_bytes = lru_.bytes(BlockLru::Kind::state);
  return counters;
}

}  // namespace hyb::app
