// Granite 4.0 H: Mamba-2 layers and a few attention layers without positions (or with rope), a
// feed-forward in every layer, and a constant factor wherever one is possible.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/io/file.h"
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::granite_hybrid {
namespace {

/// Only "rope" has positions, whatever other rope keys say.
bool uses_rope(const Config& c) {
  const std::string kind = c.s("position_embedding_type", "nope");
  if (kind != "rope" && kind != "nope") {
    c.fail("position_embedding_type", quote_name(kind) + " is not supported, only rope and nope");
  }
  return kind == "rope";
}

Part read_feed_forward(const Config& c, float output_scale) {
  // No fallback: a missing key must not turn experts off.
  const std::int32_t experts = c.i("num_local_experts", {0, 8192});
  if (experts == 0) {
    return Mlp{.hidden = c.i("shared_intermediate_size"), .output_scale = output_scale};
  }
  const Moe moe = {.experts = experts,
                   .active = c.i("num_experts_per_tok"),
                   .hidden = c.i("intermediate_size"),
                   .score = RouterScore::softmax_of_selected,
                   .shared_hidden = c.i("shared_intermediate_size", count_range),
                   .output_scale = output_scale};
  check(c, moe);
  return moe;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand(c, "normalization_function", "rmsnorm");
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "mamba_proj_bias", false);

  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  read_granite_factors(c, p, attention);
  if (uses_rope(c)) attention.rope = read_rope(c, attention.head_dim, 1.0);
  const Part feed_forward = read_feed_forward(c, attention.output_scale);
  const std::vector<MixerKind> kinds = mixer_kinds(c);
  Part recurrent = attention;
  if (std::ranges::count(kinds, MixerKind::recurrent) > 0) {
    Ssd ssd = read_mamba(c, expanded_channels(c, p.width));
    ssd.output_scale = attention.output_scale;
    recurrent = ssd;
  }
  for (const MixerKind kind : kinds) {
    const Part mixer = kind == MixerKind::attention ? Part(attention) : recurrent;
    p.layers.push_back({{{.parts = {mixer}}, {.parts = {feed_forward}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"final_norm", "model.norm.weight"},
    {"block0.norm", "model.layers.{}.input_layernorm.weight"},
    {"block1.norm", "model.layers.{}.post_attention_layernorm.weight"},
    {"mlp.gate_up", "model.layers.{}.shared_mlp.input_linear.weight"},
    {"mlp.down", "model.layers.{}.shared_mlp.output_linear.weight"},
    {"moe.router", "model.layers.{}.block_sparse_moe.router.layer.weight"},
    {"moe.gate_up", "model.layers.{}.block_sparse_moe.input_linear.weight"},
    {"moe.down", "model.layers.{}.block_sparse_moe.output_linear.weight"},
    {"moe.shared_gate_up", "model.layers.{}.shared_mlp.input_linear.weight"},
    {"moe.shared_down", "model.layers.{}.shared_mlp.output_linear.weight"},
};
constexpr auto names = joined(model_names, attention_names, mamba_names, own_names);
constexpr std::string_view model_types[] = {"granitemoehybrid"};

GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "granitemoehybrid");
  set_gguf_granite_factors(k, config);
  const std::vector<std::string> kinds = gguf_mixer_kinds(k, "mamba", "attention");
  const bool has_mamba = std::ranges::count(kinds, "mamba") > 0;
  const bool has_rope = k.flag("rope.scaling.finetuned", true);
  if (has_mamba && has_rope) {
    k.fail("rope.scaling.finetuned",
           "layers of Mamba-2 beside attention with rope are a Bamba's, whose rope the converter "
           "writes down in another order than the model has; use the folder of safetensors");
  }
  config.set("layer_types", kinds);
  config.set("position_embedding_type", has_rope ? "rope" : "nope");
  const std::int64_t experts = k.integer("expert_count", 0);
  config.set("num_local_experts", experts);
  if (experts > 0) set_gguf_experts(k, config, "num_local_experts", "intermediate_size");
  config.set("shared_intermediate_size",
             k.integer("expert_shared_feed_forward_length",
                       experts > 0 ? 0 : k.uniform("feed_forward_length")));
  if (!has_mamba) return config;
  const std::int64_t inner = set_gguf_mamba(k, config), width = k.integer("embedding_length");
  if (width < 1 || inner % width != 0) {
    k.fail("ssm.inner_size", fmt::format("{} is no multiple of the width {}", inner, width));
  }
  config.set("mamba_expand", inner / width);
  return config;
}

constexpr auto gguf_all_names = joined(gguf_names, gguf_mamba_names, gguf_expert_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "granitehybrid",
     .config = gguf_config,
     .family = {
         .plan = [](const Config& c) { return with_separate_experts(with_neighbours(plan(c))); },
         .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::granite_hybrid
