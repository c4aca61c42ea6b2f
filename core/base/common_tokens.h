#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/base/ids.h"

namespace hyb {

/// How many tokens both begin with.
inline std::int32_t common_tokens(std::span<const TokenId> one, std::span<const TokenId> other) {
  const auto ends = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  return static_cast<std::int32_t>(ends.first - one.begin());
}

}  // namespace hyb
