#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// The rows of the embedding matrix that the tokens name.
///
///   y[t,:] = W[tokens[t],:] * scale
///
/// shapes  tokens [T]   weight [V,H], any format   y [T,H]; rows may be strided
/// types   tokens: i32   y: f32 or bf16
/// numbers multiplied in f32, rounded once
/// errors  a token outside 0..V-1 is Error(runtime) before anything is written; on a card, which
///         alone knows its tokens, its row of y is NaN
/// writes  y
struct Embed {
  const Weight* weight = nullptr;
  Tensor tokens, y;
  float scale = 1.0F;
};

void embed(Queue& queue, const Embed& op);

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

/// Logits over a part of a vocabulary as logits over all of it.
///
///   y[t,c] = x[t,from[c]]; where from[c] is negative minus infinity
///
/// shapes  x [T,C]   from [N]   y [T,N]; rows of x and y may be strided
/// types   x, y: f32   from: i32
/// numbers copied
/// errors  a column from C on is Error(runtime) before anything is written; on a card, which alone
///         knows its table, it is NaN in y
/// writes  y, which may not overlap x
struct SpreadColumns {
  Tensor x, from, y;
};

void spread_columns(Queue& queue, const SpreadColumns& op);

}  // namespace hyb::kernels
