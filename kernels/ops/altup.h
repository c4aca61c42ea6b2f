#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

/// Alternating updates (AltUp, Baykal et al., NeurIPS 2023, as Gemma 3n has them): a token has n
/// residual streams. A layer predicts all from all, computes one of them, the active one, and
/// corrects all by what that became. Here a token's streams lie one after the other in a row of
/// [T,n*H], and m = tanh(router) weighs the coefficients.
namespace hyb::kernels {

inline constexpr std::int64_t altup_streams_max = 8;

///   c[t,j,i] = sum over k of coefs[j*n+i,k] * m[t,k]
///   y[t,j] = x[t,j] + sum over i of c[t,j,i] * x[t,i]
///   h[t] = y[t,active]
///
/// shapes  x, y [T,n*H]   router [T,n]   coefs [n*n,n]   h [T,H]; rows may be strided
/// types   x, y, h: f32 or bf16, the same   router, coefs: f32
/// numbers all in f32, in the order of i and k, rounded once
/// writes  y and h, which alias nothing else
struct AltupPredict {
  Tensor x, router, coefs, y, h;
  std::int64_t active = 0;
};

void altup_predict(Queue& queue, const AltupPredict& op);

///   c[t,j] = 1 + sum over k of coefs[j,k] * m[t,k]
///   y[t,j] = x[t,j] + c[t,j] * (h[t] - x[t,active])
///   h[t] = y[t,active] * scale
///
/// shapes  as in AltupPredict, but for coefs [n,n]; scale [H] or empty: 1
/// types   as in AltupPredict   scale: f32
/// numbers all in f32, in the order of k; y is rounded before it is scaled, and again after
/// writes  y, which may be x, and h
struct AltupCorrect {
  Tensor x, router, coefs, scale, y, h;
  std::int64_t active = 0;
};

void altup_correct(Queue& queue, const AltupCorrect& op);

///   x[t] = x[t] * sqrt(mean of like[t]^2) / sqrt(max(mean of x[t]^2, 1e-5))
///
/// shapes  x, like [T,H]; rows may be strided
/// types   x, like: f32 or bf16, the same
/// numbers all in f32, rounded once
/// writes  x
struct MatchMagnitude {
  Tensor x, like;
};

void match_magnitude(Queue& queue, const MatchMagnitude& op);

///   y = (y + x) * scale
///
/// shapes  x, y [T,H]; rows may be strided
/// types   x, y: f32 or bf16, the same
/// numbers in f32; the sum and its product are each rounded
/// writes  y
struct AddRows {
  Tensor x, y;
  float scale = 1.0F;
};

void add_rows(Queue& queue, const AddRows& op);

}  // namespace hyb::kernels
