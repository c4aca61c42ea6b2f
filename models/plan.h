#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "kernels/activation.h"

namespace hyb::models {

/// The vocabulary in which every family is described: values only, no tensors, no device.
/// A plan holds what config.json says in our words; state and KV bytes, the list of tensors,
/// `hyb inspect` and `hyb fit` derive from it without knowing the family.

/// y = rms(x) * w, or rms(x) * (1 + w).
enum class Norm : std::uint8_t { rms, rms_1p };

struct Rope {
  std::int32_t rotary_dim;  ///< the first dims of a head that turn; pairs are (i, i + rotary_dim/2)
  double theta;
};

/// Grouped-query attention over pages of keys and values.
struct Attention {
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  float scale;                  ///< factor on q.k
  std::optional<Rope> rope;     ///< none: no positional encoding
  std::optional<Norm> qk_norm;  ///< per-head norm of q and k
  bool output_gate = false;     ///< q_proj holds [q | gate] per head; out *= sigmoid(gate)
};

/// Mamba-2: in_proj -> [z | x B C | dt], causal conv over xBC, recurrence, gated norm, out_proj.
struct Ssd {
  std::int32_t heads;
  std::int32_t head_dim;    ///< P
  std::int32_t state_dim;   ///< N
  std::int32_t groups;      ///< B and C are shared by heads / groups heads
  std::int32_t conv_width;  ///< K
  bool conv_bias = true;
  std::int32_t norm_groups = 1;  ///< the gated norm runs over inner()/norm_groups channels
  float dt_min = 0.0F;
  float dt_max = std::numeric_limits<float>::infinity();

  std::int32_t inner() const { return heads * head_dim; }
  std::int32_t conv_dim() const { return inner() + 2 * groups * state_dim; }
  std::int32_t projection() const { return inner() + conv_dim() + heads; }
};

/// Gated delta net.
struct DeltaNet {
  std::int32_t key_heads;
  std::int32_t value_heads;
  std::int32_t key_dim;    ///< per head
  std::int32_t value_dim;  ///< per head
  std::int32_t conv_width;

  std::int32_t keys() const { return key_heads * key_dim; }
  std::int32_t values() const { return value_heads * value_dim; }
  std::int32_t conv_dim() const { return 2 * keys() + values(); }
};

/// Gated short convolution: in_proj -> [B | C | x], C * conv(B * x), out_proj.
struct ShortConv {
  std::int32_t channels;  ///< of each of the three
  std::int32_t conv_width;
};

using Activation = kernels::ActivationFunction;

/// Feed-forward: down(act(gate) * up) when gated, else down(act(up)).
struct Mlp {
  std::int32_t hidden;
  Activation activation = Activation::silu;
  bool gated = true;
};

/// How router logits become expert weights.
enum class RouterScore : std::uint8_t {
  softmax_of_selected,  ///< top-k of the logits, softmax over those k
  softmax,              ///< softmax over all, then top-k
  sigmoid,              ///< sigmoid, top-k of score + correction bias
};

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
  std::int32_t active_groups = 1;  ///< of which so many may be chosen from
  std::int32_t latent = 0;         ///< experts work on so many dims (0: on the full width)
  Activation activation = Activation::silu;
  bool gated = true;
  std::int32_t shared_hidden = 0;  ///< always-on expert beside them (0: none)
  bool shared_gate = false;        ///< shared expert times sigmoid(gate . x)
};

using Part = std::variant<Attention, Ssd, DeltaNet, ShortConv, Mlp, Moe>;

/// h += residual_scale * sum over parts of part(norm(h)).
struct Block {
  Norm norm = Norm::rms;
  std::vector<Part> parts;
  float residual_scale = 1.0F;
};

struct Layer {
  std::vector<Block> blocks;
};

struct Plan {
  std::string family;  ///< model_type
  std::int32_t vocab;  ///< rows of the embedding
  std::int32_t width;  ///< H
  float norm_eps;
  Norm final_norm = Norm::rms;
  float embedding_scale = 1.0F;
  float logits_scale = 1.0F;  ///< factor on the logits
  bool tied_head = false;
  DType weight_dtype = DType::bf16;  ///< what config.json says the weights are
  DType state_dtype = DType::f32;    ///< of the recurrent matrices
  std::int32_t positions_max = 0;    ///< max_position_embeddings; 0: not stated
  std::vector<Layer> layers;

  /// visit(const Attention&), visit(const Ssd&), ... of every part, in order.
  template <typename Visit>
  void visit_parts(const Visit& visit) const {
    for (const Layer& layer : layers) {
      for (const Block& block : layer.blocks) {
        for (const Part& part : block.parts) std::visit(visit, part);
      }
    }
  }

  /// Whether some part is a T, of which `is_meant` is true.
  template <typename T, typename IsMeant>
  bool has(const IsMeant& is_meant) const {
    bool found = false;
    visit_parts([&](const auto& part) {
      if constexpr (std::is_same_v<std::decay_t<decltype(part)>, T>) found |= is_meant(part);
    });
    return found;
  }

  /// Whether positions past positions_max degrade.
  bool has_rope() const {
    return has<Attention>([](const Attention& part) { return part.rope.has_value(); });
  }
  bool has_experts() const {
    return has<Moe>([](const Moe&) { return true; });
  }
};

}  // namespace hyb::models
