#include "kernels/ops/sample_nucleus.h"

#include <algorithm>
#include <array>
#include <bit>

namespace hyb::kernels {
namespace {

/// Exponent and five bits of the mantissa: rises with the weight, 4064 for 1.
constexpr std::size_t bins = 4065;
std::size_t bin_of(float weight) { return std::bit_cast<std::uint32_t>(weight) >> 18; }

/// Writes the tokens of one bin to `room`, likelier first.
std::span<Candidate> members(std::span<const float> weights, std::size_t bin,
                             std::span<Candidate> room) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (bin_of(weights[i]) == bin) room[count++] = {weights[i], static_cast<std::int32_t>(i)};
  }
  const auto found = room.first(count);
  std::sort(found.begin(), found.end(), likelier);
  return found;
}

}  // namespace

void keep_nucleus(std::span<float> weights, double mass, std::span<Candidate> room) {
  // Only the bin in which the mass is reached has to be sorted.
  std::array<double, bins> sums{};
  for (const float weight : weights) sums[bin_of(weight)] += static_cast<double>(weight);
  double sum = 0.0;
  std::size_t bin = bins - 1;
  while (bin > 0 && sum + sums[bin] < mass) sum += sums[bin--];
  if (bin == 0) return;  // rounding: all of them together just miss it
  const std::span<const Candidate> ordered = members(weights, bin, room);
  std::size_t kept = 0;
  while (kept < ordered.size() && sum < mass) sum += static_cast<double>(ordered[kept++].logit);
  if (kept == 0) return;
  const Candidate last = ordered[kept - 1];
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (likelier(last, {weights[i], static_cast<std::int32_t>(i)})) weights[i] = 0.0F;
  }
}

}  // namespace hyb::kernels
