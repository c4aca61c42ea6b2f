#include "kernels/ops/sample_adjust.h"

#include <limits>

namespace hyb::kernels {
namespace {

/// Touches only what the history names: counting in a whole vocabulary would cost more.
void apply_penalties(const SampleRow& row, std::span<float> logits,
                     std::span<std::int32_t> counts) {
  constexpr std::int32_t done = -1;
  const auto at = [](TokenId token) { return static_cast<std::size_t>(index(token)); };
  for (const TokenId token : row.history) counts[at(token)] = 0;
  for (const TokenId token : row.history.subspan(static_cast<std::size_t>(row.prompt_tokens))) {
    ++counts[at(token)];
  }
  for (const TokenId token : row.history) {
    std::int32_t& count = counts[at(token)];
    if (count == done) continue;
    float& logit = logits[at(token)];
    logit = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (count > 0) {
      logit -= row.frequency_penalty * static_cast<float>(count) + row.presence_penalty;
    }
    count = done;
  }
}

}  // namespace

bool has_penalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0F || row.frequency_penalty != 0.0F ||
         row.presence_penalty != 0.0F;
}

bool has_adjustments(const SampleRow& row) {
  return !row.banned.empty() || !row.bias.empty() || (has_penalties(row) && !row.history.empty());
}

void adjust_logits(const SampleRow& row, std::span<float> logits, std::span<std::int32_t> counts) {
  if (has_penalties(row)) apply_penalties(row, logits, counts);
  for (const LogitBias& bias : row.bias) {
    logits[static_cast<std::size_t>(index(bias.token))] += bias.bias;
  }
  for (const TokenId token : row.banned) {
    logits[static_cast<std::size_t>(index(token))] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace hyb::kernels
