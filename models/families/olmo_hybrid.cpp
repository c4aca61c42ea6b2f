// OLMo Hybrid: gated delta nets whose beta reaches 2, three to one layer of attention, whose norms
// come after its parts.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "models/families/common.h"

namespace hyb::models::olmo_hybrid {
namespace {

std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has("layer_types")) return mixer_kinds(c, {"linear_attention"});
  std::vector<MixerKind> kinds;
  for (std::int32_t layer = 0; layer < layer_count(c); ++layer) {
    kinds.push_back(layer % 4 == 3 ? MixerKind::attention : MixerKind::recurrent);
  }
  if (kinds.size() < 4) kinds.back() = MixerKind::attention;
  return kinds;
}

/// Published with rope_theta null: without positions. That is not as if the key were absent.
bool has_positions(const Config& c) {
  constexpr const char* theta = "rope_theta";
  const std::optional<Config> rope = c.object({"rope_parameters", "rope_scaling"});
  if (rope && rope->is_null(theta)) return false;
  return (rope && rope->has(theta)) || !c.is_null(theta);
}

Attention read_normed_attention(const Config& c) {
  Attention attention = read_attention(c, read_head_dim(c));
  attention.qk_norm = Norm::rms;
  attention.whole_norm = true;
  if (!has_positions(c)) return attention;
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  if (attention.rope->rotary_dim() != attention.head_dim) {
    c.fail("partial_rotary_factor", "is not supported, only 1");
  }
  return attention;
}

DeltaNet read_delta(const Config& c, std::int32_t width) {
  const std::int32_t heads = c.i("num_attention_heads");
  const std::int32_t key_heads = c.i("linear_num_key_heads", heads);
  const auto three_quarters = static_cast<std::int32_t>(std::int64_t{width} * 3 / 4 / key_heads);
  const std::int32_t key_dim = c.i("linear_key_head_dim", three_quarters);
  if (key_dim < 1) {
    c.fail("linear_num_key_heads", "leaves heads of no width; give linear_key_head_dim");
  }
  const DeltaNet delta = {
      .shape = {.key_heads = key_heads,
                .beta_scale = c.b("linear_allow_neg_eigval", true) ? 2.0F : 1.0F},
      .value_heads = c.i("linear_num_value_heads", heads),
      .key_dim = key_dim,
      .value_dim = c.i("linear_value_head_dim", 2 * key_dim),
      .conv_width = c.i("linear_conv_kernel_dim", 4, {2, 4}),
      // Whatever rms_norm_eps is.
      .norm_eps = 1e-5F};
  check(c, delta);
  return delta;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  Plan p = read_plan(c, "rms_norm_eps");
  const Attention attention = read_normed_attention(c);
  const DeltaNet delta = read_delta(c, p.width);
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  const auto after = [](const Part& part) {
    return Block{.norm = Norm::none, .parts = {part}, .post_norm = Norm::rms};
  };
  for (const MixerKind kind : read_mixers(c)) {
    if (kind == MixerKind::attention) {
      p.layers.push_back({{after(attention), after(mlp)}});
    } else {
      p.layers.push_back({{{.parts = {delta}}, {.parts = {mlp}}}});
    }
  }
  return p;
}

// A layer of delta nets has norms before its parts, one of attention after them. Where transformers
// saves a model, what it renames of the former it renames of the latter, too.
constexpr TensorName own_names[] = {
    {"block0.norm", "*.layers.{}.attention_layer_norm.weight"},
    {"block1.norm", "*.layers.{}.feedforward_layer_norm.weight"},
    {"block1.norm", "*.layers.{}.post_attention_layernorm.weight"},
    {"block0.post_norm", "*.layers.{}.post_attention_layernorm.weight"},
    {"block0.post_norm", "*.layers.{}.feedforward_layer_norm.weight"},
    {"block1.post_norm", "*.layers.{}.post_feedforward_layernorm.weight"},
    {"delta.q", "*.layers.{}.linear_attn.q_proj.weight"},
    {"delta.k", "*.layers.{}.linear_attn.k_proj.weight"},
    {"delta.v", "*.layers.{}.linear_attn.v_proj.weight"},
    {"delta.z", "*.layers.{}.linear_attn.g_proj.weight"},
    {"delta.b", "*.layers.{}.linear_attn.b_proj.weight"},
    {"delta.a", "*.layers.{}.linear_attn.a_proj.weight"},
    {"delta.q_conv", "*.layers.{}.linear_attn.q_conv1d.weight"},
    {"delta.k_conv", "*.layers.{}.linear_attn.k_conv1d.weight"},
    {"delta.v_conv", "*.layers.{}.linear_attn.v_conv1d.weight"},
    {"delta.conv_weight", "*.layers.{}.linear_attn.conv1d.weight"},
    {"delta.a_log", "*.layers.{}.linear_attn.A_log"},
    {"delta.dt_bias", "*.layers.{}.linear_attn.dt_bias"},
    {"delta.norm", "*.layers.{}.linear_attn.o_norm.weight"},
    {"delta.out_proj", "*.layers.{}.linear_attn.o_proj.weight"},
};
constexpr auto names = joined(own_names, trunk_names, qk_norm_names);
constexpr std::string_view model_types[] = {"olmo_hybrid"};

}  // namespace

const Family family = {model_types, plan, names};

}  // namespace hyb::models::olmo_hybrid
