#pragma once

#include <cstdint>
#include <optional>

#include "kernels/ops/gated_activation.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// The norm before a matrix product: rms_norm, or with `gate` gated_norm, of its rows. Without
/// a weight there is none.
struct InputNorm {
  Tensor weight = {};  ///< [K] f32
  float eps = 1e-5F;
  bool one_plus = false;      ///< as in RmsNorm
  Tensor gate = {};           ///< [T,K], as in GatedNorm
  std::int64_t groups = 1;    ///< as in GatedNorm
  bool norm_first = false;    ///< as in GatedNorm
  bool sigmoid_gate = false;  ///< as in GatedNorm

  bool empty() const { return weight.empty(); }
};

/// Writes norm(x) to y; y may be x itself. There is a norm.
void apply(Queue& queue, const InputNorm& norm, const Tensor& x, const Tensor& y);

/// A projection of the residual stream with its norm and activation, in one op:
///
///   n = norm(x)   p = n * W^T + bias   y = activation(p), or (add ? y : 0) + scale * p
///
/// shapes  x [T,K]   weight [N,K]   y [T,N], or [T,N/2] with a gated activation; rows may be
/// strided
///         normed [T,K], with a norm; may be x itself   product [T,N], with an activation: both
///         room to work in
/// types   x, normed, product: f32 or bf16, the same   y: the type of x, or f32 without activation
///         weight: as for linear
/// numbers those of rms_norm or gated_norm, linear and gated_activation one after the other, each
///         with its rounding; an activation is neither scaled nor added
/// writes  y, to normed anything but for keep_normed, to product anything; y aliases none of the
///         others
struct Project {
  Tensor x;
  InputNorm norm = {};
  const Weight* weight = nullptr;
  Tensor y;
  std::optional<Activation> activation = {};
  bool keep_normed = false;  ///< normed is norm(x) afterwards; it is not x itself then
  Tensor normed = {}, product = {};
  float scale = 1.0F;
  bool add = false;
  Tensor bias = {};  ///< [N] f32, or empty; added before the one rounding of p, as in Linear
};

void project(Queue& queue, const Project& op);

}  // namespace hyb::kernels
