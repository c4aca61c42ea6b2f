// Bamba: Mamba-2 layers and a few attention layers with partial rope, a feed-forward in every
// layer.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "models/families.h"
#include "models/families/rules.h"

namespace hyb::models {
namespace {

/// A list of kinds, or `attn_layer_indices`.
std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has({"layer_types", "layers_block_type"})) return mixer_kinds(c);
  const std::int32_t layers = layer_count(c);
  std::vector<MixerKind> kinds(static_cast<std::size_t>(layers), MixerKind::recurrent);
  if (!c.has("attn_layer_indices")) return kinds;
  for (const std::int32_t layer : c.integers("attn_layer_indices", {0, layers - 1})) {
    kinds[static_cast<std::size_t>(layer)] = MixerKind::attention;
  }
  return kinds;
}

Attention read_attention(const Config& c, std::int32_t width) {
  const std::int32_t heads = c.i("num_attention_heads");
  if (!c.has("head_dim")) demand_multiple(c, "hidden_size", width, "num_attention_heads", heads);
  const std::int32_t head_dim = c.i("head_dim", width / heads);
  // Half of a head turns, though published configs don't say so.
  const Rope rope = read_rope(c, head_dim, 0.5);
  if (c.f("partial_rotary_factor", 0.5) != 0.5) {
    c.fail("partial_rotary_factor", "is fixed at 0.5 in this family");
  }
  if (c.i("attn_rotary_emb", rope.rotary_dim) != rope.rotary_dim) {
    c.fail("attn_rotary_emb", fmt::format("is not {}, half of a head", rope.rotary_dim));
  }
  const Attention attention = {.heads = heads,
                               .kv_heads = c.i("num_key_value_heads", heads),
                               .head_dim = head_dim,
                               .scale = static_cast<float>(1.0 / std::sqrt(head_dim)),
                               .rope = rope,
                               .qk_norm = {}};
  check(c, attention);
  return attention;
}

Plan plan(const Config& c) {
  refuse_quantized(c);
  demand(c, "hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias"}) {
    demand_flag(c, key, false);
  }
  const std::int32_t width = c.i("hidden_size");
  const Attention attention = read_attention(c, width);
  const Ssd ssd = read_mamba(c, width);
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  Plan p = {.family = c.model_type(),
            .vocab = c.i("vocab_size"),
            .width = width,
            .norm_eps = read_norm_eps(c, "rms_norm_eps"),
            .tied_head = c.b("tie_word_embeddings", false),
            .weight_dtype = c.dtype({"dtype", "torch_dtype"}, DType::bf16),
            .positions_max = c.i("max_position_embeddings", 0, count_range),
            .has_rope = true,
            .layers = {}};
  for (const MixerKind kind : read_mixers(c)) {
    const Part mixer = kind == MixerKind::attention ? Part(attention) : Part(ssd);
    p.layers.push_back({{{.parts = {mixer}}, {.parts = {mlp}}}});
  }
  return p;
}

constexpr TensorName names[] = {
    {"embed", "model.embed_tokens.weight"},
    {"final_norm", "model.final_layernorm.weight"},
    {"head", "lm_head.weight"},
    {"block0.norm", "model.layers.{}.input_layernorm.weight"},
    {"block1.norm", "model.layers.{}.pre_ff_layernorm.weight"},
    {"attention.q", "model.layers.{}.self_attn.q_proj.weight"},
    {"attention.k", "model.layers.{}.self_attn.k_proj.weight"},
    {"attention.v", "model.layers.{}.self_attn.v_proj.weight"},
    {"attention.o", "model.layers.{}.self_attn.o_proj.weight"},
    {"ssd.in_proj", "model.layers.{}.mamba.in_proj.weight"},
    {"ssd.conv_weight", "model.layers.{}.mamba.conv1d.weight"},
    {"ssd.conv_bias", "model.layers.{}.mamba.conv1d.bias"},
    {"ssd.a_log", "model.layers.{}.mamba.A_log"},
    {"ssd.d", "model.layers.{}.mamba.D"},
    {"ssd.dt_bias", "model.layers.{}.mamba.dt_bias"},
    {"ssd.norm", "model.layers.{}.mamba.norm.weight"},
    {"ssd.out_proj", "model.layers.{}.mamba.out_proj.weight"},
    {"mlp.gate", "model.layers.{}.feed_forward.gate_proj.weight"},
    {"mlp.up", "model.layers.{}.feed_forward.up_proj.weight"},
    {"mlp.down", "model.layers.{}.feed_forward.down_proj.weight"},
};
constexpr std::string_view model_types[] = {"bamba"};

}  // namespace

const Family bamba = {.model_types = model_types, .plan = plan, .names = names};

}  // namespace hyb::models
