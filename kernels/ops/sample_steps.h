#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/ops/sample.h"

namespace hyb::kernels {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): random words
/// that are a function of (key, counter) alone.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t right = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(right >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(right),
               static_cast<std::uint32_t>(left >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(left)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Uniform in [0, 1) with 53 bits, for the `draw`-th use of `seed`.
constexpr double uniform_draw(std::uint64_t seed, std::uint64_t draw) {
  const auto words =
      philox({static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0, 0},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

/// True where a row's logits are not sampled as they are.
bool has_adjustments(const SampleRow& row);

/// Applies bans, masks, penalties and biases to a copy of the row's logits. `counts` is scratch,
/// one per logit, with any content.
void adjust_logits(const SampleRow& row, std::span<float> logits, std::span<std::int32_t> counts);

/// A token that may be chosen, with its logit or another number that rises with it.
struct Candidate {
  float logit;
  std::int32_t token;
};

/// Likelier first; of equals the lower id.
constexpr bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// Writes the `wanted` likeliest tokens of a row, sorted, into the front of `room` and returns how
/// many there are: less than `wanted` where fewer are above minus infinity. `room` has a place for
/// every logit.
std::int32_t select_likeliest(std::span<const float> logits, std::int32_t wanted,
                              std::span<Candidate> room);

/// Sets to zero all weights but the fewest largest ones whose sum reaches `mass`; of equals the
/// lower ids stay. Weights are between 0 and 1. `room` has a place for every weight.
void keep_nucleus(std::span<float> weights, double mass, std::span<Candidate> room);

}  // namespace hyb::kernels
