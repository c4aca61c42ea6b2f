// LFM2 and LFM2-MoE: gated short convolutions and a few attention layers with rope, a feed-forward
// or a sparse MoE in every layer.
#include <string>
#include <vector>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::lfm2 {
namespace {

/// `layer_types`, or `full_attn_idxs`; without both every layer has attention.
std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has("layer_types")) return mixer_kinds(c, {"conv"});
  if (c.has("full_attn_idxs")) return mixer_kinds_at(c, "full_attn_idxs");
  return std::vector(static_cast<std::size_t>(layer_count(c)), MixerKind::attention);
}

RopeParameters read_full_rope(const Config& c, std::int32_t head_dim) {
  const RopeParameters rope = read_rope(c, head_dim, 1.0, 1e6);
  if (rope.rotary_dim() != head_dim) c.fail("partial_rotary_factor", "is not supported, only 1");
  if (c.f("theta", rope.theta) != rope.theta) c.fail("theta", "is not rope_theta");
  return rope;
}

/// Reads the feed-forward's width: with block_auto_adjust_ff_dim two thirds of the stated one,
/// times a factor (1 if absent) and rounded up, unless the factor is null.
Mlp read_adjusted_mlp(const Config& c) {
  std::int64_t hidden = c.i({"block_ff_dim", "intermediate_size"});
  if (c.b("block_auto_adjust_ff_dim", true)) {
    constexpr const char* key = "block_ffn_dim_multiplier";
    hidden = 2 * hidden / 3;
    if (!c.is_null(key)) {
      const double factor = c.f(key, 1.0);
      const std::int64_t multiple = c.i("block_multiple_of", 256);
      hidden = static_cast<std::int64_t>(static_cast<double>(hidden) * factor);
      hidden = (hidden + multiple - 1) / multiple * multiple;
    }
    if (hidden < 1 || hidden > dimension_range.high) {
      c.fail(key, "makes a feed-forward of an absurd width");
    }
  }
  return {.hidden = static_cast<std::int32_t>(hidden)};
}

Moe read_moe(const Config& c) {
  const Moe moe = {.experts = c.i(expert_count_keys, IntRange{1, 8192}),
                   .active = c.i("num_experts_per_tok"),
                   .hidden = c.i("moe_intermediate_size"),
                   .score = RouterScore::sigmoid,
                   .renormalize = c.b("norm_topk_prob", true),
                   .renormalize_epsilon = 1e-6F,
                   .correction_bias = c.b("use_expert_bias", true),
                   .scale = static_cast<float>(c.f("routed_scaling_factor", 1.0))};
  check(c, moe);
  return moe;
}

Plan plan(const Config& c) {
  demand_flag(c, "conv_bias", false);
  const bool is_moe = c.model_type() == "lfm2_moe";
  Plan p = read_plan(c, {"norm_eps", "block_norm_eps", "rms_norm_eps"});
  p.tied_head = c.b({"tie_embedding", "tie_word_embeddings"}, true);
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_full_rope(c, attention.head_dim);
  attention.qk_norm = Norm::rms;
  const ShortConv conv = {.channels = p.width, .conv_width = c.i("conv_L_cache", 3, {2, 4})};
  const Mlp mlp = is_moe ? Mlp{.hidden = c.i("intermediate_size")} : read_adjusted_mlp(c);
  const std::vector<MixerKind> mixers = read_mixers(c);
  const std::int32_t dense =
      is_moe ? c.i("num_dense_layers", 2, count_range) : dimension_range.high;
  for (std::int32_t layer = 0; layer < std::ssize(mixers); ++layer) {
    const bool is_full = mixers[static_cast<std::size_t>(layer)] == MixerKind::attention;
    const Part mixer = is_full ? Part(attention) : Part(conv);
    const Part feed_forward = layer < dense ? Part(mlp) : Part(read_moe(c));
    p.layers.push_back({{{.parts = {mixer}}, {.parts = {feed_forward}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"attention.q", "model.layers.{}.self_attn.q_proj.weight"},
    {"attention.k", "model.layers.{}.self_attn.k_proj.weight"},
    {"attention.v", "model.layers.{}.self_attn.v_proj.weight"},
    {"attention.o", "model.layers.{}.self_attn.out_proj.weight"},
    {"attention.q_norm", "model.layers.{}.self_attn.q_layernorm.weight"},
    {"attention.k_norm", "model.layers.{}.self_attn.k_layernorm.weight"},
    {"moe.router", "model.layers.{}.feed_forward.gate.weight"},
    {"moe.correction_bias", "model.layers.{}.feed_forward.expert_bias"},
    {"moe.expert_gate", "model.layers.{}.feed_forward.experts.{}.w1.weight"},
    {"moe.expert_up", "model.layers.{}.feed_forward.experts.{}.w3.weight"},
    {"moe.expert_down", "model.layers.{}.feed_forward.experts.{}.w2.weight"},
    {"moe.gate_up", "model.layers.{}.feed_forward.experts.gate_up_proj"},
    {"moe.down", "model.layers.{}.feed_forward.experts.down_proj"},
};
constexpr auto names = joined(model_names, lfm_names, own_names);
constexpr std::string_view model_types[] = {"lfm2", "lfm2_moe"};

GgufConfig gguf_common(const GgufKeys& k, const char* model_type) {
  if (k.integer("attention.sliding_window", 0) > 0) {
    k.fail("attention.sliding_window", "windows of this architecture are not supported");
  }
  GgufConfig config = gguf_common_config(k, model_type);
  config.set("layer_types", gguf_mixer_kinds(k, "conv", "full_attention"));
  config.set("conv_L_cache", k.integer("shortconv.l_cache"));
  config.set("block_auto_adjust_ff_dim", false);
  // ollama's key may be the width before it was adjusted.
  if (const GgufTensor* const gate = k.any_tensor("ffn_gate.weight")) {
    config.set("intermediate_size", gate->shape.front());
  }
  return config;
}

GgufConfig gguf_config(const GgufKeys& k) {
  refuse_gguf_experts(k);
  return gguf_common(k, "lfm2");
}

GgufConfig gguf_moe_config(const GgufKeys& k) {
  constexpr std::int64_t sigmoid = 2;
  if (k.integer("expert_gating_func", sigmoid) != sigmoid) {
    k.fail("expert_gating_func", "is not supported, only 2 (sigmoid)");
  }
  GgufConfig config = gguf_common(k, "lfm2_moe");
  config.set("num_dense_layers", k.integer("leading_dense_block_count", 0));
  set_gguf_experts(k, config, "num_experts", "moe_intermediate_size");
  config.set("routed_scaling_factor", k.real("expert_weights_scale", 1.0));
  return config;
}

constexpr TensorName gguf_own_names[] = {
    {"final_norm", "token_embd_norm.weight"},
    {"conv.in_proj", "blk.{}.shortconv.in_proj.weight"},
    {"conv.weight", "blk.{}.shortconv.conv.weight"},
    {"conv.out_proj", "blk.{}.shortconv.out_proj.weight"},
};
constexpr auto gguf_all_names = joined(gguf_own_names, gguf_names, gguf_expert_names);
constexpr Family gguf_family = {
    .plan = [](const Config& c) { return with_separate_experts(plan(c)); },
    .names = gguf_all_names};

constexpr GgufArchitecture architectures[] = {
    {.name = "lfm2", .config = gguf_config, .family = gguf_family},
    {.name = "lfm2moe", .config = gguf_moe_config, .family = gguf_family}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::lfm2
