#pragma once

#include <array>
#include <cstdint>

#include "kernels/floats.h"
#include "kernels/weight_code.h"

namespace hyb::kernels {

inline constexpr std::int64_t quantize_rows = 64;
inline constexpr std::int64_t quantize_group = 32;

/// Groups of one column range of 64 rows, each quantized for itself.
struct QuantizedGroups {
  std::array<bf16, quantize_rows> scales;
  std::array<std::uint8_t, quantize_rows * quantize_group> codes;  ///< [32][64]
};

inline constexpr double q8_error = 0.5 / 127 * (1 + 0x1p-8);
/// Reached where the largest is positive and the scale 0.85 of its own: -largest becomes -99 of
/// 127.
inline constexpr double q4_error = 1 - 0.85 * 99 / 127 * (1 - 0x1p-8);

/// The codes and scales of 64 groups by q8 or q4, from `values` [32][64].
///   q8  scale = largest size / 127, codes to nearest: an element is off by at most q8_error of the
///       group's largest; normal weights by 0.5 % of their size
///   q4  of a few scales around the one that makes the element of largest size the largest level,
///       and one fitted to the best of them, that with the least squared error: an element is off
///       by at most q4_error of the group's largest; normal weights by 7.5 % of their size
/// Any element that is no finite number makes its group NaN; a group of zeros stays zeros.
void quantize(WeightCode code, const float* values, QuantizedGroups& groups);

}  // namespace hyb::kernels
