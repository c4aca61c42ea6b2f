#include "core/memory/kind.h"

#include <algorithm>

namespace hyb {
namespace {

/// Whether the range and [from, length) have a position in common.
bool reaches(PositionRange positions, std::int32_t from, std::int32_t length) {
  return std::max(positions.first, from) < std::min(positions.last, length);
}

}  // namespace

bool FullAttention::needs(PositionRange positions, std::int32_t length) const {
  return reaches(positions, 0, length);
}

bool SlidingWindow::needs(PositionRange positions, std::int32_t length) const {
  return reaches(positions, length - window_ + 1, length);
}

bool ChunkedAttention::needs(PositionRange positions, std::int32_t length) const {
  return reaches(positions, length - length % chunk_, length);
}

}  // namespace hyb
