#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// A matrix product with the weight's matrix of one expert (0 for a plain matrix).
///
///   y[t,n] = (add ? y[t,n] : 0) + scale * (sum_k x[t,k] * W[n,k] + bias[n])
///
/// shapes  x [T,K]   y [T,N]; rows may be strided   bias [N], or empty: 0
/// types   x: f32 or bf16   y: the type of x, or f32   bias: f32
///         weight: panels for the type of x; or rows of any type (on the CPU by the plain loop), on
///         a card also codes, for x of bf16
/// numbers summed in f32 over ascending k in one order for every T, so that a row's answer is the
///         same bits alone and among others; the bias is added to that sum in f32, and y is
///         rounded once. Every route is within
///         (K+4) * 2^-23 * |scale| * sum_k |x[t,k] * W[n,k]| of the exact sum, not counting that
///         rounding; of a weight with minima x * scale and x * minimum count apart. Panels of f16
///         give the bits that those of f32 with the same numbers give. avx512 adds bf16 products in
///         pairs of k and takes denormals as zero.
/// writes  y, nothing else; y may not alias x
struct Linear {
  Tensor x;
  const Weight* weight = nullptr;
  std::int64_t expert = 0;
  Tensor y;
  float scale = 1.0F;
  bool add = false;
  Tensor bias = {};
};

void linear(Queue& queue, const Linear& op);

/// Products with all matrices of a weight, each one a head's with its own columns of x and y.
///
///   head h: linear from columns h*S+F .. h*S+F+K-1 of x to columns h*N .. h*N+N-1 of y
///
/// shapes  x [T,E*S]   y [T,E*N]; rows may be strided   F: first
/// types, numbers and writes are those of linear, and so are the bits. The weight has neither parts
///         nor an order of columns.
struct LinearHeads {
  Tensor x;
  std::int64_t first = 0;
  const Weight* weight = nullptr;
  Tensor y;

  std::int64_t x_step() const { return x.dim(1) / weight->experts(); }
  Linear head(std::int64_t h) const {
    return {.x = x.columns(h * x_step() + first, weight->columns()),
            .weight = weight,
            .expert = h,
            .y = y.columns(h * weight->rows(), weight->rows())};
  }
};

void linear_heads(Queue& queue, const LinearHeads& op);

/// Calls body(part) with the product of each part of a weight that has several; false: it has none.
template <typename Body>
bool each_part(const Linear& op, const Body& body) {
  std::int64_t above = 0;  // rows of the parts before
  for (const Weight& weight : op.weight->parts()) {
    Linear part = op;
    part.weight = &weight;
    part.y = op.y.columns(above, weight.rows());
    if (!op.bias.empty())
      part.bias = Tensor(op.bias.as<float>() + above, DType::f32, {weight.rows()});
    body(part);
    above += weight.rows();
  }
  return above > 0;
}

}  // namespace hyb::kernels
