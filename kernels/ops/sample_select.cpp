#include "kernels/ops/sample_select.h"

#include <algorithm>
#include <limits>

namespace hyb::kernels {

std::int32_t select_likeliest(std::span<const float> logits, std::int32_t wanted,
                              std::span<Candidate> room) {
  // Whoever is above the bar gets in; when the room is full, the best `wanted` stay and the last of
  // them is the new bar. After a few thousand logits hardly any passes it.
  const auto keep = static_cast<std::size_t>(wanted);
  const std::size_t full = std::min(room.size(), std::max(2 * keep, keep + 1024));
  const auto at = [&](std::size_t i) { return room.begin() + static_cast<std::ptrdiff_t>(i); };
  std::size_t taken = 0;
  float bar = -std::numeric_limits<float>::infinity();
  const auto keep_best = [&] {
    if (taken <= keep) return;
    std::nth_element(room.begin(), at(keep - 1), at(taken), likelier);
    taken = keep;
    bar = room[keep - 1].logit;  // a later equal has a higher id: it loses anyway
  };
  if (keep == 0) return 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > bar)) continue;
    if (taken == full) keep_best();
    room[taken++] = {logits[i], static_cast<std::int32_t>(i)};
  }
  keep_best();
  std::sort(room.begin(), at(taken), likelier);
  return static_cast<std::int32_t>(taken);
}

}  // namespace hyb::kernels
