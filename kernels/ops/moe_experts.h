#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/gated_activation.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// The chosen experts' feed-forward of every token.
///
///   y[t,:] = (add ? y[t,:] : 0) + scale * sum over the chosen e of
///            weights[t,j] * (down[e] * activation(gate_up[e] * x[t,:] + gate_up_bias[e])
///                            + down_bias[e])
///
/// shapes  x, y [T,H]; rows may be strided   chosen, weights [T,k]
///         gate_up [E,2I,H] ([E,I,H] without a gate)   down [E,H,I]
///         gate_up_bias [E,2I] ([E,I]), down_bias [E,H], contiguous, or empty: 0
/// types   x, y: f32 or bf16, the same   chosen: i32   weights, biases: f32
///         gate_up, down: panels of the type of x; or rows of any type, then by the plain loop
/// numbers the sums over k are linear's. gate_up * x + gate_up_bias and the activation are rounded
///         to the type of x; the experts' outputs are added in f32 in ascending order of e; y is
///         rounded once. So a token's answer does not depend on the others'.
/// errors  a chosen expert outside 0..E-1 is Error(runtime) before anything is written
/// needs   workspace: at least moe_experts_workspace_bytes, any contents
/// writes  y and the workspace; y may not alias x
struct MoeExperts {
  Tensor x;
  Tensor chosen, weights;
  const Weight* gate_up = nullptr;
  const Weight* down = nullptr;
  Tensor y;
  Tensor workspace;  ///< bytes (u8 [n]), aligned to 64
  Activation activation = {};
  float scale = 1.0F;
  bool add = false;
  Tensor gate_up_bias = {}, down_bias = {};
};

/// For calls with up to `tokens` tokens and `chosen` experts each.
struct MoeExpertsShape {
  std::int64_t tokens, chosen;
  std::int64_t experts, hidden, intermediate;  ///< E, H, I
  DType dtype;                                 ///< of x and y
  Activation activation = {};
};
std::size_t moe_experts_workspace_bytes(const MoeExpertsShape& shape);

void moe_experts(Queue& queue, const MoeExperts& op);

/// Throws Error(runtime) for a bias that is there and is not f32, one for each row of its weight.
void check_expert_biases(const char* op, const Tensor& gate_up, const Tensor& down,
                         const Weight& gate_up_weight, const Weight& down_weight);

}  // namespace hyb::kernels
