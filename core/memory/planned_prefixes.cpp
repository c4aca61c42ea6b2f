// What the prefix cache does where the requests to come are known.
#include "core/memory/prefix_cache.h"

namespace hyb {

std::vector<Cut> PrefixCache::cuts_at(const Lookup& lookup, std::span<const TokenId> prompt,
                                      std::span<const std::int32_t> lengths) const {
  std::vector<Cut> cuts;
  if (!options_.enabled) return cuts;
  for (const std::int32_t length : lengths) {
    if (length - lookup.resumable < options_.branch_tokens_min) continue;
    if (length >= static_cast<std::int32_t>(prompt.size())) break;
    cuts.push_back({length, SnapshotPlace::branch});
  }
  return cuts;
}

void PrefixCache::devalue(std::span<const TokenId> key, std::int32_t tokens) {
  for (Snapshot* const snapshot : tree_.on_the_way(key)) {
    if (snapshot->node->depth > tokens) eviction_.devalue(*snapshot);
  }
}

}  // namespace hyb
