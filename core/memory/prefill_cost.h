#pragma once

#include <cstdint>

namespace hyb {

/// Seconds to prefill the first `length` tokens of a sequence: a * length + b * length^2.
struct PrefillCost {
  double seconds_per_token = 1e-4;
  double seconds_per_token_squared = 0;

  double of(std::int32_t length) const {
    const double l = length;
    return seconds_per_token * l + seconds_per_token_squared * l * l;
  }
};

/// The cost of a machine that computes so many FLOPs per second, from the FLOPs of a prefill of
/// `length` tokens as `linear * length + square * length^2`. For weighing one snapshot against
/// another the speed is of no matter; for weighing a tier against prefill it is.
PrefillCost prefill_cost_of_flops(double linear, double square, double flops_per_second);

}  // namespace hyb
