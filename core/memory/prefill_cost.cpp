#include "core/memory/prefill_cost.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb {

PrefillCost fit_prefill_cost(std::span<const PrefillSample> samples) {
  // seconds / s ~ 1 with weights 1 / s: minimise the sum of (a u + b v - 1)^2 with u = l / s and
  // v = l^2 / s. Lengths are scaled to at most 1, so that u and v are of one size.
  double longest = 0;
  for (const PrefillSample& sample : samples) {
    longest = std::max(longest, static_cast<double>(sample.length));
  }
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const PrefillSample& sample : samples) {
    if (sample.length <= 0 || !(sample.seconds > 0)) continue;
    const double length = sample.length / longest;
    const double u = length / sample.seconds;
    const double v = length * u;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u1 += u;
    v1 += v;
  }
  if (!(uu > 0)) return {};
  const double determinant = uu * vv - uv * uv;
  double a = u1 / uu;
  double b = 0;
  if (determinant > 1e-9 * uu * vv) {  // else all samples have one length
    const double both_a = (u1 * vv - v1 * uv) / determinant;
    const double both_b = (v1 * uu - u1 * uv) / determinant;
    if (both_a < 0) {
      a = 0;
      b = v1 / vv;
    } else if (both_b > 0) {
      a = both_a;
      b = both_b;
    }
  }
  return {.seconds_per_token = a / longest, .seconds_per_token_squared = b / (longest * longest)};
}

PrefillCost prefill_cost_of_flops(double linear, double square, double flops_per_second) {
  require(linear >= 0 && square >= 0 && linear + square > 0 && flops_per_second > 0,
          "prefill cost: FLOPs and their speed are positive");
  return {.seconds_per_token = linear / flops_per_second,
          .seconds_per_token_squared = square / flops_per_second};
}

}  // namespace hyb
