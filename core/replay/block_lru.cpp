#include "core/replay/block_lru.h"

namespace hyb {

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
  for (; bytes_[0] + bytes_[1] > budget_bytes_ && ages_.begin()->time < time; ++count) {
    const Key victim = ages_.begin()->key;
    ages_.erase(ages_.begin());
    const auto found = entries_.find(victim);
    bytes_[static_cast<std::size_t>(victim.kind)] -= found->second.bytes;
    entries_.erase(found);
  }
  return count;
}

}  // namespace hyb
