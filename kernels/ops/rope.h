#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Rotary positions, half-split pairing, in place: of each head's first R = rotary_dim values, i
/// and i + R/2 are a pair; what lies behind them stays.
///
///   angle = position_of_row[t] * theta^(-2i/R)
///   (x_i, x_j) <- (x_i cos - x_j sin, x_j cos + x_i sin)         i < R/2, j = i + R/2
///
/// shapes  x [T, heads*head_dim]; rows may be strided   position_of_row [T]
/// types   x: f32 or bf16   position_of_row: i32
/// numbers the angle, its sine and cosine in f64, then f32; rotated in f32, rounded once
/// writes  x
struct Rope {
  Tensor x, position_of_row;
  std::int64_t heads = 0, head_dim = 0, rotary_dim = 0;
  double theta = 10000.0;
};

void rope(Queue& queue, const Rope& op);

}  // namespace hyb::kernels
