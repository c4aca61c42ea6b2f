#include "tests/sim/snapshot_oracle.h"

#include <algorithm>

#include "tests/sim/toy_runner.h"

namespace hyb::sim {

void SnapshotOracle::add(std::span<const TokenId> key) {
  known_.push_back({.key = {key.begin(), key.end()}, .used_at = ++clock_});
}

void SnapshotOracle::use(std::span<const TokenId> key) {
  const auto found = find(key);
  if (found != known_.end()) found->used_at = ++clock_;
}

void SnapshotOracle::evict(std::span<const TokenId> key, bool in_order) {
  const auto found = find(key);
  if (found == known_.end()) throw Violation("evicted what was not there");
  const auto older = std::count_if(known_.begin(), known_.end(), [&](const Known& other) {
    return other.used_at < found->used_at;
  });
  if (in_order && older > 1) throw Violation("evicted what was used later than others");
  known_.erase(found);
}

std::int32_t SnapshotOracle::deepest(std::span<const TokenId> prompt) const {
  const auto most = static_cast<std::int32_t>(prompt.size()) - 1;
  std::int32_t best = 0;
  for (const Known& known : known_) {
    const auto end =
        std::mismatch(prompt.begin(), prompt.end(), known.key.begin(), known.key.end());
    const auto common = std::min(static_cast<std::int32_t>(end.first - prompt.begin()), most);
    const auto length = static_cast<std::int32_t>(known.key.size());
    if (layout_.slots.per_superblock > 0) {
      if (common == length) best = std::max(best, length);
      continue;
    }
    for (std::int32_t at = common; at > best; --at) {
      if (holds_all(length, at)) best = at;
    }
  }
  return best;
}

/// Whether a snapshot at `length` has every page that is needed at `at`.
bool SnapshotOracle::holds_all(std::int32_t length, std::int32_t at) const {
  const std::int32_t size = layout_.page_tokens;
  for (const PageGroup& group : layout_.groups) {
    for (std::int32_t first = 0; first < at; first += size) {
      const PositionRange page{first, std::min(first + size, at)};
      const bool wanted = first + size > at || group.kind->needs(page, at);
      const bool held = first + size > length || group.kind->needs({first, first + size}, length);
      if (wanted && !held) return false;
    }
  }
  return true;
}

std::vector<SnapshotOracle::Known>::iterator SnapshotOracle::find(std::span<const TokenId> key) {
  return std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
    return std::equal(key.begin(), key.end(), known.key.begin(), known.key.end());
  });
}

}  // namespace hyb::sim
