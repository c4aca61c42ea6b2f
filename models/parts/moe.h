#pragma once

#include <cstdint>

#include "models/parts/mlp.h"

namespace hyb::models {

/// Function from router logits to expert weights.
enum class RouterScore : std::uint8_t {
  softmax_of_selected,  ///< top-k of the logits, softmax over those k
  softmax,              ///< softmax over all, then top-k
  sigmoid,              ///< sigmoid, top-k of score + correction bias
};

struct MoeWeights {
  kernels::Weight router, gate_up, down;
  kernels::Tensor correction_bias;
  kernels::Weight latent_in, latent_out;                 ///< empty without a latent width
  MlpWeights shared;                                     ///< empty without a shared expert
  kernels::Weight shared_gate;                           ///< [1,H], or empty
  kernels::Tensor router_bias, gate_up_bias, down_bias;  ///< with biases
  kernels::Tensor router_norm, expert_scale;             ///< [H], [experts], or empty
};

/// Mixture of experts, each a feed-forward.
struct Moe {
  std::int32_t experts;
  std::int32_t active;
  std::int32_t hidden;  ///< per expert
  RouterScore score = RouterScore::softmax_of_selected;
  bool renormalize = false;
  float renormalize_epsilon = 0.0F;  ///< added to the sum of weights that is divided by
  bool correction_bias = false;
  bool router_f32 = false;  ///< the router's weights and product are f32, whatever the rest is
  float scale = 1.0F;
  std::int32_t groups = 1;         ///< router groups
  std::int32_t active_groups = 1;  ///< groups that experts may be chosen from
  std::int32_t latent = 0;         ///< width that experts work on (0: the full width)
  kernels::Activation activation = {};
  std::optional<kernels::Activation> shared_activation = {};  ///< where it is another one
  std::int32_t shared_hidden = 0;  ///< of an expert that every token goes through (0: none)
  bool shared_gate = false;        ///< shared expert times sigmoid(gate . x)
  bool biases = false;             ///< of the router's logits and of the experts' products
  bool alternating = false;        ///< published rows of gate_up are gate, up, gate, up, ...
  bool separate = false;           ///< gate and up may be published as a tensor each of all experts
  bool transposed = false;         ///< published matrices of experts are [in, out]
  bool weighs_input = false;       ///< the weight of the only expert is a factor on what it sees
  /// The router reads x before its norm, with one of its own: rms(x) * w / sqrt(H).
  bool router_norm = false;
  bool expert_scale = false;  ///< one number per expert, a factor on its weight
  float output_scale = 1.0F;

  using Weights = MoeWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const { return {}; }
  PartWork work() const { return {.experts = experts, .active = active}; }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  bool operator==(const Moe&) const = default;
};

}  // namespace hyb::models
