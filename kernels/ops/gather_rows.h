#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// The rows of a matrix that a table names.
///
///   y[i,:] = x[rows[i],:]
///
/// shapes  x [T,C]   rows [N]   y [N,C]; rows of x and y may be strided
/// types   x, y: f32 or bf16, the same   rows: i32
/// numbers copied
/// errors  a row outside 0..T-1 is Error(runtime) before anything is written
/// writes  y, which may not overlap x
struct GatherRows {
  Tensor x, rows, y;
};

void gather_rows(Queue& queue, const GatherRows& op);

}  // namespace hyb::kernels
