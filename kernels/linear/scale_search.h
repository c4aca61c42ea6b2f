#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace hyb::kernels {

/// Levels that a group of numbers is written in, times one scale.
///   int4  -8..7, a bf16 scale of either sign: the largest number may take the level -8
///   e2m1  0, 0.5, 1, 1.5, 2, 3, 4, 6 and below 0; the scale is E4M3 times a unit
///   int8  -128..127, a bf16 scale
enum class ScaledLevels : std::uint8_t { int4, e2m1, int8 };

/// Finds the scale of a group whose levels are nearest to `numbers` by
/// sum over k of importance[k] * (numbers[k] - scale * level[k])^2, and writes these levels. The
/// error is at most that of the scale which makes the largest number the largest level; groups that
/// are a scale times levels are met exactly (of int8 where the largest is of size 127). Equal
/// errors: the scale that is tried first, by a fixed order.
///
/// shapes  numbers, importance (>= 0), nearest: [n], n divisible by 8
/// unit    of e2m1, above 0: the scale is unit * e4m3; else not used
/// result  the scale without the unit; 0 of a group of zeros, or one that is too small for scales;
///         nullopt: a number is not finite
std::optional<float> search_scale(ScaledLevels levels, std::span<const float> numbers,
                                  std::span<const float> importance, float unit,
                                  std::span<float> nearest);

/// The unit of a matrix whose largest number has this size: leaves scales room to grow by half
/// beyond the one that makes it the largest level. A power of two, so that what scales and levels
/// make is exact in bf16, to which some engines dequantise. 1 of zeros.
float e2m1_unit(float largest);

}  // namespace hyb::kernels
