#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// Which pairs of neighbours merge, in which order, into what.
class MergeTable {
 public:
  using Rank = std::int32_t;
  static constexpr Rank none = INT32_MAX;

  explicit MergeTable(std::size_t merges);

  /// Ranks grow from 0 with every call. A pair that comes again takes the later rank.
  void add(TokenId left, TokenId right, TokenId merged);

  /// Lower merges first; `none` where the two do not merge.
  Rank rank(TokenId left, TokenId right) const;

  TokenId merged(Rank rank) const { return merged_[static_cast<std::size_t>(rank)]; }

 private:
  struct Slot {
    std::uint64_t pair = empty;
    Rank rank = none;
  };
  static constexpr std::uint64_t empty = UINT64_MAX;

  std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
  std::vector<TokenId> merged_;
  std::uint64_t seed_;  // hostile files cannot choose colliding pairs
};

}  // namespace hyb
