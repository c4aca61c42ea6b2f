#include "kernels/ops/sample_steps.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace hyb::kernels {
namespace {

/// Touches only what the history names: counting in a whole vocabulary would cost more.
void apply_penalties(const SampleRow& row, std::span<float> logits,
                     std::span<std::int32_t> counts) {
  constexpr std::int32_t done = -1;
  const SamplingNumbers& by = *row.params;
  const auto at = [](TokenId token) { return static_cast<std::size_t>(index(token)); };
  for (const TokenId token : row.history) counts[at(token)] = 0;
  for (const TokenId token : row.history.subspan(static_cast<std::size_t>(row.prompt_tokens))) {
    ++counts[at(token)];
  }
  for (const TokenId token : row.history) {
    std::int32_t& count = counts[at(token)];
    if (count == done) continue;
    float& logit = logits[at(token)];
    logit = logit > 0.0F ? logit / by.repetition_penalty : logit * by.repetition_penalty;
    if (count > 0) {
      logit -= by.frequency_penalty * static_cast<float>(count) + by.presence_penalty;
    }
    count = done;
  }
}

}  // namespace

bool has_adjustments(const SampleRow& row) {
  const SamplingParams& params = *row.params;
  return !params.banned.empty() || !params.bias.empty() || !row.mask.empty() ||
         (has_penalties(params) && !row.history.empty());
}

void adjust_logits(const SampleRow& row, std::span<float> logits, std::span<std::int32_t> counts) {
  if (has_penalties(*row.params)) apply_penalties(row, logits, counts);
  for (const LogitBias& bias : row.params->bias) {
    logits[static_cast<std::size_t>(index(bias.token))] += bias.bias;
  }
  for (const TokenId token : row.params->banned) {
    logits[static_cast<std::size_t>(index(token))] = -std::numeric_limits<float>::infinity();
  }
  // Most words allow all of their tokens or none.
  for (std::size_t word = 0; word < row.mask.size() && word * 32 < logits.size(); ++word) {
    const auto tokens =
        logits.subspan(word * 32, std::min<std::size_t>(32, logits.size() - word * 32));
    const std::uint32_t mask = row.mask[word];
    if (mask == ~0U) continue;
    if (mask == 0) std::ranges::fill(tokens, -std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; mask != 0 && i < tokens.size(); ++i) {
      if ((mask >> i & 1U) == 0) tokens[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

std::int32_t select_likeliest(std::span<const float> logits, std::int32_t wanted,
                              std::span<Candidate> room) {
  // Candidates above the bar are kept; when the buffer is full, the best `wanted` stay and the last
  // of them is the new bar. After a few thousand logits hardly any passes it.
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
