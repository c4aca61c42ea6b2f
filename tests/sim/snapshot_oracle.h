#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/memory/layout.h"

namespace hyb::sim {

/// Knows by plain lists which snapshots a prefix tree holds, what can be resumed from them and in
/// which order they were used.
class SnapshotOracle {
 public:
  explicit SnapshotOracle(const MemoryLayout& layout) : layout_(layout) {}

  void add(std::span<const TokenId> key);
  void use(std::span<const TokenId> key);
  void clear() { known_.clear(); }

  /// Takes one out. Throws Violation when there is none, or when `in_order` and others were used
  /// longer ago: one of those may be spared, because somebody stands on it.
  void evict(std::span<const TokenId> key, bool in_order);

  /// The most tokens of the prompt, one less than it has, that can be resumed.
  std::int32_t deepest(std::span<const TokenId> prompt) const;

 private:
  struct Known {
    std::vector<TokenId> key;
    std::int64_t used_at;
  };
  std::vector<Known>::iterator find(std::span<const TokenId> key);
  bool holds_all(std::int32_t length, std::int32_t at) const;

  MemoryLayout layout_;
  std::vector<Known> known_;
  std::int64_t clock_ = 0;
};

}  // namespace hyb::sim
