#pragma once

#include <optional>
#include <span>

namespace hyb::app {

/// How likely means at least so far apart are when both samples come from distributions of one
/// mean: Welch's t-test, two-sided. Nothing where a sample has less than two values.
std::optional<double> welch_p(std::span<const double> a, std::span<const double> b);

/// The regularised incomplete beta function I_x(a, b), 0 <= x <= 1, to about 1e-10.
double incomplete_beta(double a, double b, double x);

}  // namespace hyb::app
