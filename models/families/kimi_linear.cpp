// Kimi Linear: Kimi delta attention, three layers to one of attention by latents without positions;
// experts in all but the first layers.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "models/families/gguf.h"

namespace hyb::models::kimi_linear {
namespace {

/// Reads the lists of linear_attn_config, which count from 1.
std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has("layer_types")) return mixer_kinds(c, {"linear_attention"});
  const std::int32_t layers = layer_count(c);
  const auto place = [](std::int32_t layer) { return static_cast<std::size_t>(layer); };
  std::vector<MixerKind> kinds(place(layers), MixerKind::recurrent);
  const std::optional<Config> linear = c.object("linear_attn_config");
  if (!linear || !linear->has("full_attn_layers") || !linear->has("kda_layers")) {
    for (std::int32_t i = 4; i < layers; i += 4) kinds[place(i)] = MixerKind::attention;
    return kinds;
  }
  std::vector<int> named(place(layers), 0);
  for (const std::int32_t layer : linear->integers("kda_layers", {1, layers})) {
    ++named[place(layer - 1)];
  }
  for (const std::int32_t layer : linear->integers("full_attn_layers", {1, layers})) {
    ++named[place(layer - 1)];
    kinds[place(layer - 1)] = MixerKind::attention;
  }
  const auto wrong = std::ranges::find_if(named, [](int count) { return count != 1; });
  if (wrong != named.end()) {
    linear->fail("kda_layers", fmt::format("and full_attn_layers name layer {} {} times, not once",
                                           wrong - named.begin() + 1, *wrong));
  }
  return kinds;
}

DeltaNet read_delta(const Config& c, float norm_eps) {
  const std::optional<Config> linear = c.object("linear_attn_config");
  const auto read = [&](const char* key, const char* inner, std::int32_t fallback, IntRange range) {
    return linear && linear->has(inner) ? linear->i(inner, range) : c.i(key, fallback, range);
  };
  const std::int32_t heads = read("linear_num_heads", "num_heads", 32, dimension_range);
  const std::int32_t head_dim = read("linear_head_dim", "head_dim", 128, dimension_range);
  const DeltaNet delta = {
      .shape = {.key_heads = heads, .per_channel = true},
      .value_heads = heads,
      .key_dim = head_dim,
      .value_dim = head_dim,
      .conv_width = read("linear_conv_kernel_dim", "short_conv_kernel_size", 4, {2, 4}),
      .norm_eps = norm_eps,
      .rank = head_dim};
  check(c, delta);
  return delta;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  demand(c, "moe_router_activation_func", "sigmoid");
  demand_flag(c, "use_grouped_topk", true);
  Plan p = read_plan(c, "rms_norm_eps");
  if (p.positions_max == 0) p.positions_max = c.i("model_max_length", 0, count_range);
  const DeltaNet delta = read_delta(c, p.norm_eps);
  if (!c.b("mla_use_nope", true)) c.fail("mla_use_nope", "false is not supported, only true");
  const Mla mla = read_mla(c);
  const std::vector<MixerKind> mixers = read_mixers(c);
  const std::vector<bool> sparse = sparse_after_first(c, 1);
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    const bool is_full = mixers[layer] == MixerKind::attention;
    const Part mixer = is_full ? Part(mla) : Part(delta);
    const Part feed_forward = sparse[layer] ? Part(read_grouped_experts(c, {.scale = 2.446}))
                                            : Part(Mlp{.hidden = c.i("intermediate_size")});
    p.layers.push_back({{{.parts = {mixer}}, {.parts = {feed_forward}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"mla.q", "*.layers.{}.self_attn.q_proj.weight"},
    {"mla.q_a", "*.layers.{}.self_attn.q_a_proj.weight"},
    {"mla.q_norm", "*.layers.{}.self_attn.q_a_layernorm.weight"},
    {"mla.q_b", "*.layers.{}.self_attn.q_b_proj.weight"},
    {"mla.kv_a", "*.layers.{}.self_attn.kv_a_proj_with_mqa.weight"},
    {"mla.kv_norm", "*.layers.{}.self_attn.kv_a_layernorm.weight"},
    {"mla.kv_b", "*.layers.{}.self_attn.kv_b_proj.weight"},
    {"mla.o", "*.layers.{}.self_attn.o_proj.weight"},
    {"delta.q", "*.layers.{}.self_attn.q_proj.weight"},
    {"delta.k", "*.layers.{}.self_attn.k_proj.weight"},
    {"delta.v", "*.layers.{}.self_attn.v_proj.weight"},
    {"delta.q_conv", "*.layers.{}.self_attn.q_conv1d.weight"},
    {"delta.k_conv", "*.layers.{}.self_attn.k_conv1d.weight"},
    {"delta.v_conv", "*.layers.{}.self_attn.v_conv1d.weight"},
    {"delta.a_a", "*.layers.{}.self_attn.f_a_proj.weight"},
    {"delta.a_b", "*.layers.{}.self_attn.f_b_proj.weight"},
    {"delta.z_a", "*.layers.{}.self_attn.g_a_proj.weight"},
    {"delta.z_b", "*.layers.{}.self_attn.g_b_proj.weight"},
    {"delta.b", "*.layers.{}.self_attn.b_proj.weight"},
    {"delta.a_log", "*.layers.{}.self_attn.A_log"},
    {"delta.dt_bias", "*.layers.{}.self_attn.dt_bias"},
    {"delta.norm", "*.layers.{}.self_attn.o_norm.weight"},
    {"delta.out_proj", "*.layers.{}.self_attn.o_proj.weight"},
    {"moe.router", "*.layers.{}.block_sparse_moe.gate.weight"},
    {"moe.correction_bias", "*.layers.{}.block_sparse_moe.gate.e_score_correction_bias"},
    {"moe.expert_gate", "*.layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    {"moe.expert_up", "*.layers.{}.block_sparse_moe.experts.{}.w3.weight"},
    {"moe.expert_down", "*.layers.{}.block_sparse_moe.experts.{}.w2.weight"},
    {"moe.shared_gate", "*.layers.{}.block_sparse_moe.shared_experts.gate_proj.weight"},
    {"moe.shared_up", "*.layers.{}.block_sparse_moe.shared_experts.up_proj.weight"},
    {"moe.shared_down", "*.layers.{}.block_sparse_moe.shared_experts.down_proj.weight"},
};
constexpr auto names = joined(own_names, model_names, layer_names, second_norm_names);
constexpr std::string_view model_types[] = {"kimi_linear"};

GgufConfig gguf_config(const GgufKeys& k) {
  if (k.integer("expert_gating_func", 2) != 2) {
    k.fail("expert_gating_func", "only 2, a sigmoid, is supported");
  }
  GgufConfig config = gguf_base_config(k, "kimi_linear");
  config.set("max_position_embeddings", k.integer("context_length"));
  config.set("rms_norm_eps", k.real("attention.layer_norm_rms_epsilon"));
  config.set("layer_types", gguf_mixer_kinds(k, "linear_attention", "full_attention"));
  const std::int64_t heads = k.uniform("attention.head_count");
  const std::int64_t turned = k.integer("rope.dimension_count");
  config.set("num_attention_heads", heads);
  config.set("qk_rope_head_dim", turned);
  config.set("qk_nope_head_dim", k.integer("attention.key_length_mla") - turned);
  config.set("v_head_dim", k.integer("attention.value_length_mla"));
  config.set("kv_lora_rank", k.integer("attention.kv_lora_rank"));
  constexpr const char* rank = "attention.q_lora_rank";
  if (k.has(rank)) config.set("q_lora_rank", k.integer(rank));
  config.set("linear_num_heads", heads);
  config.set("linear_head_dim", k.integer("kda.head_dim"));
  config.set("linear_conv_kernel_dim", k.integer("ssm.conv_kernel"));
  config.set("intermediate_size", k.uniform("feed_forward_length"));
  set_gguf_experts(k, config, "num_experts", "moe_intermediate_size");
  config.set("num_shared_experts", k.integer("expert_shared_count"));
  config.set("first_k_dense_replace", k.integer("leading_dense_block_count", 0));
  config.set("routed_scaling_factor", k.real("expert_weights_scale", 1.0));
  config.set("moe_renormalize", k.flag("expert_weights_norm", true));
  config.set("n_group", k.integer("expert_group_count", 1));
  config.set("topk_group", k.integer("expert_group_used_count", 1));
  return config;
}

Plan gguf_plan(const Config& c) { return with_separate_experts(plan(c)); }

constexpr TensorName own_gguf_names[] = {
    {"mla.q", "blk.{}.attn_q.weight"},
    {"mla.q_a", "blk.{}.attn_q_a.weight"},
    {"mla.q_norm", "blk.{}.attn_q_a_norm.weight"},
    {"mla.q_b", "blk.{}.attn_q_b.weight"},
    {"mla.kv_a", "blk.{}.attn_kv_a_mqa.weight"},
    {"mla.kv_norm", "blk.{}.attn_kv_a_norm.weight"},
    {"mla.kv_b", "blk.{}.attn_kv_b.weight"},
    {"mla.k_b", "blk.{}.attn_k_b.weight"},
    {"mla.v_b", "blk.{}.attn_v_b.weight"},
    {"mla.o", "blk.{}.attn_output.weight"},
    {"delta.q", "blk.{}.attn_q.weight"},
    {"delta.k", "blk.{}.attn_k.weight"},
    {"delta.v", "blk.{}.attn_v.weight"},
    {"delta.q_conv", "blk.{}.ssm_conv1d_q.weight"},
    {"delta.k_conv", "blk.{}.ssm_conv1d_k.weight"},
    {"delta.v_conv", "blk.{}.ssm_conv1d_v.weight"},
    {"delta.a_a", "blk.{}.ssm_f_a.weight"},
    {"delta.a_b", "blk.{}.ssm_f_b.weight"},
    {"delta.z_a", "blk.{}.ssm_g_a.weight"},
    {"delta.z_b", "blk.{}.ssm_g_b.weight"},
    {"delta.b", "blk.{}.ssm_beta.weight"},
    {"delta.rate", "blk.{}.ssm_a"},
    {"delta.dt_bias", "blk.{}.ssm_dt.bias"},
    {"delta.norm", "blk.{}.ssm_norm.weight"},
    {"delta.out_proj", "blk.{}.attn_output.weight"},
};
constexpr auto gguf_all_names = joined(own_gguf_names, gguf_names, gguf_expert_names);
constexpr GgufArchitecture architectures[] = {
    {.name = "kimi-linear",
     .config = gguf_config,
     .family = {.plan = gguf_plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::kimi_linear
