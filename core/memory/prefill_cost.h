#pragma once

#include <cstdint>
#include <span>

namespace hyb {

/// How long a prefill of `length` tokens took.
struct PrefillSample {
  std::int32_t length;
  double seconds;
};

/// Seconds to prefill the first `length` tokens of a sequence: a * length + b * length^2.
struct PrefillCost {
  double seconds_per_token = 1e-4;
  double seconds_per_token_squared = 0;

  double of(std::int32_t length) const {
    const double l = length;
    return seconds_per_token * l + seconds_per_token_squared * l * l;
  }
};

/// The cost whose relative errors have the least sum of squares, neither term below 0. Samples of
/// length or time 0 or less do not count; with no other the cost is the default one.
PrefillCost fit_prefill_cost(std::span<const PrefillSample> samples);

/// The cost of a machine that computes so many FLOPs per second, from the FLOPs of a prefill of
/// `length` tokens as `linear * length + square * length^2`. For weighing one snapshot against
/// another the speed is of no matter.
PrefillCost prefill_cost_of_flops(double linear, double square, double flops_per_second = 1e12);

}  // namespace hyb
