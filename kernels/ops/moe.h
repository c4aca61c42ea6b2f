#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/linear/project.h"
#include "kernels/ops/gated_activation.h"
#include "kernels/ops/moe_route.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// A mixture of experts, with a shared expert or without:
///
///   n = norm(x)   chosen, weights = moe_route(n * router^T + router_bias, expert_scale), with
///                 router_x in place of n where there is one
///   shared = down_s * activation(gate_up_s * n) * (shared_gate ? sigmoid(shared_gate . n) : 1)
///   routed = moe_experts(n, chosen, weights)
///            with weighs_input, one expert a token: moe_experts(weights * n, chosen, 1)
///            with latent experts: latent_out * moe_experts(latent_in * n, chosen, weights)
///   y = y + scale * (routed + shared)
///
/// shapes  x, y [T,H]; rows may be strided   router [E,H]   bias, router_bias [E] or empty
///         gate_up_bias [E,2I] ([E,I]), down_bias [E,H] ([E,L]), or empty: as in MoeExperts
///         gate_up [E,2I,H] ([E,I,H] without a gate)   down [E,H,I]
///         latent_in [L,H], latent_out [H,L]: then gate_up [E,2I,L] ([E,I,L]), down [E,L,I]; or
///         both null
///         shared_gate_up [2S,H] ([S,H])   shared_down [H,S], or both null   shared_gate [1,H]
///         or null
///         workspace: at least moe_workspace_bytes, aligned to 64; zeros before its first use
/// types   x, y: f32 or bf16, the same   biases: f32   weights: as for linear; a router of f32
///         has the logits of the same rows in f32, and so has a shared_gate of f32
/// numbers those of the parts; logits are f32, a rounding there could swap experts; what goes into
///         and comes from latent experts is rounded to the type of x; y is rounded once for each of
///         the two terms, or once for both
/// writes  y and the workspace; y may be x where there is a norm
struct FusedMoe {
  Tensor x;
  InputNorm norm = {};
  const Weight* router = nullptr;
  const Weight* gate_up = nullptr;
  const Weight* down = nullptr;
  const Weight* shared_gate_up = nullptr;
  const Weight* shared_down = nullptr;
  Tensor bias = {};
  Routing routing = {};
  std::int64_t active = 0;  ///< k
  Activation activation = {};
  Tensor y;
  Tensor workspace = {};
  float scale = 1.0F;
  const Weight* shared_gate = nullptr;
  const Weight* latent_in = nullptr;
  const Weight* latent_out = nullptr;
  Tensor router_bias = {}, gate_up_bias = {}, down_bias = {};
  bool weighs_input = false;  ///< k is 1, and no expert is latent; rounded to the type of x
  Tensor router_x = {}, expert_scale = {};  ///< [T,H] as x, [E] f32, or empty; with router_x no
                                            ///< shared expert has a gate
  std::optional<Activation> shared_activation = {};  ///< where the shared expert has another one,
                                                     ///< gated alike
  bool add = true;  ///< else y = scale * routed, of experts that are neither shared nor latent
};

/// For calls with up to `tokens` tokens.
struct MoeShape {
  std::int64_t tokens, active;
  std::int64_t experts, hidden, intermediate;  ///< E, H, I
  std::int64_t shared_intermediate;            ///< S, 0: none
  DType dtype;                                 ///< of x and y
  Activation activation = {};
  std::int64_t latent = 0;           ///< L, 0: experts see x itself
  DType router_dtype = DType::bf16;  ///< matters where it is f32 and x is bf16
  bool has_shared_gate = false;
  bool weighs_input = false;

  /// Columns of what an expert reads and writes.
  std::int64_t expert_width() const { return latent > 0 ? latent : hidden; }
  /// Returns the width of rows that experts see other than those of the router.
  std::int64_t own_width() const { return weighs_input ? hidden : latent; }
};
MoeShape shape_of(const FusedMoe& op);
std::size_t moe_workspace_bytes(Device device, const MoeShape& shape);

void fused_moe(Queue& queue, const FusedMoe& op);

/// Tensors one after another in an op's workspace, aligned to 64 bytes; without one only their
/// bytes are counted.
class Room {
 public:
  explicit Room(std::byte* base) : base_(base) {}

  Tensor take(DType dtype, std::int64_t rows, std::int64_t columns) {
    const Tensor tensor(base_ == nullptr ? nullptr : base_ + bytes_, dtype, {rows, columns});
    const std::size_t bytes = static_cast<std::size_t>(rows * columns) * size_of(dtype);
    bytes_ += (bytes + alignment - 1) / alignment * alignment;
    return tensor;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t alignment = 64;
  std::byte* base_;
  std::size_t bytes_ = 0;
};

}  // namespace hyb::kernels
