#pragma once

#include <cstdint>
#include <span>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Neighbouring columns with a factor.
struct ColumnSegment {
  std::int64_t columns;
  float factor;
};

inline constexpr std::int64_t column_segments_max = 8;

/// Multiplies the columns of a matrix by constants, segment by segment from the first column on:
///
///   x[t,i] *= factor of the segment that holds column i
///
/// shapes  x [T,N]; rows may be strided   segments: 1 to column_segments_max, of N columns together
/// types   x: f32 or bf16
/// numbers in f32, rounded once
/// writes  x
struct ScaleColumns {
  Tensor x;
  std::span<const ColumnSegment> segments;
};

void scale_columns(Queue& queue, const ScaleColumns& op);

}  // namespace hyb::kernels
