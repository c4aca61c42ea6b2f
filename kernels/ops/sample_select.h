#pragma once

#include <cstdint>
#include <span>

namespace hyb::kernels {

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

}  // namespace hyb::kernels
