// Ling's hybrid models: 3.0 with Kimi delta attention, 2.5 and 2.6 with lightning attention; in the
// last layer of every group attention by latents with rope, experts in all but the first layers.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "models/families/common.h"

namespace hyb::models::bailing_hybrid {
namespace {

/// Else lightning attention. Both are published under one model_type.
bool has_delta_nets(const Config& c) {
  constexpr const char* key = "short_conv_kernel_size";
  if (c.has(key)) return true;
  if (c.has("group_norm_size")) return false;
  c.fail(key,
         "is not there, which Kimi delta attention (Ling 3.0) has, nor group_norm_size, which "
         "lightning attention (Ling 2.5) has");
}

/// Engines differ in what the layers after the last whole group are.
std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has("layer_types")) return mixer_kinds(c, {"linear_attention"});
  const std::int32_t layers = layer_count(c), group = c.i("layer_group_size", IntRange{1, 4096});
  demand_multiple(c, "num_hidden_layers", layers, "layer_group_size", group);
  std::vector<MixerKind> kinds;
  for (std::int32_t layer = 1; layer <= layers; ++layer) {
    kinds.push_back(layer % group == 0 ? MixerKind::attention : MixerKind::recurrent);
  }
  return kinds;
}

/// transformers writes the width of what rope turns of latents as head_dim.
std::int32_t read_linear_dim(const Config& c) { return c.i({"linear_head_dim", "head_dim"}, 128); }

/// partial_rotary_factor is not of these heads; num_key_value_heads is not of Ling 2.5's.
Mla read_latents(const Config& c, bool has_gate) {
  Mla mla = has_gate ? read_mla(c) : read_mla(c.without("num_key_value_heads"));
  const RopeParameters whole = read_rope(c, read_linear_dim(c), 1.0, 6e6);
  if (!whole.scaling.empty()) c.fail("rope_scaling", whole.scaling + " is not supported");
  mla.rope = RopeParameters::plain(mla.turned_width, whole.theta);
  mla.rope->neighbours = c.b("rope_interleave", true);
  mla.head_gate = has_gate;
  return mla;
}

DeltaNet read_delta(const Config& c, float norm_eps) {
  const std::int32_t heads = c.i("num_attention_heads"), head_dim = read_linear_dim(c);
  constexpr const char* bound = "kda_lower_bound";
  const double floor = c.b("kda_safe_gate", true) ? c.f(bound, -5.0) : 0.0;
  if (c.b("kda_safe_gate", true) && floor >= 0) {
    c.fail(bound, fmt::format("must be below 0, is {}", floor));
  }
  const DeltaNet delta = {
      .shape = {.key_heads = heads, .per_channel = true, .decay_floor = static_cast<float>(floor)},
      .value_heads = heads,
      .key_dim = head_dim,
      .value_dim = head_dim,
      .conv_width = c.i("short_conv_kernel_size", IntRange{2, 4}),
      .norm_eps = norm_eps};
  check(c, delta);
  return delta;
}

/// A layer's pace as the published code has it; vLLM and SGLang take the layer before it for it.
Lightning read_lightning(const Config& c, float norm_eps, std::int32_t layer) {
  const std::int32_t heads = c.i("num_attention_heads"), head_dim = read_linear_dim(c);
  const std::int32_t groups = c.i("group_norm_size");
  demand_multiple(c, "num_attention_heads x head_dim", std::int64_t{heads} * head_dim,
                  "group_norm_size", groups);
  const Lightning lightning = {
      .heads = heads,
      .head_dim = head_dim,
      .pace = static_cast<float>(1 - (layer - 1.0) / (layer_count(c) - 1.0) + 1e-5),
      .norm_eps = norm_eps,
      .rope = read_rope(c, head_dim, 1.0, 6e6),
      .norm_groups = groups};
  check(c, lightning, false);
  return lightning;
}

/// Reads the limit of a layer's gates and ups: the class of transformers reads none, but the models
/// were trained with them. nullopt: no limit.
std::optional<kernels::Activation> read_limit(const Config& c, const char* key, std::size_t layer) {
  if (!c.has(key)) return std::nullopt;
  const std::vector<double> limits = c.numbers(key);
  if (limits.size() <= layer) {
    c.fail(key,
           fmt::format("has {} entries, num_hidden_layers is {}", limits.size(), layer_count(c)));
  }
  const double limit = limits[layer];
  if (limit == 0) return std::nullopt;
  if (!(limit > 0)) c.fail(key, fmt::format("entry {}: must not be below 0, is {}", layer, limit));
  return kernels::Activation{.function = kernels::ActivationFunction::limited_silu,
                             .limit = static_cast<float>(limit)};
}

Moe read_experts(const Config& c, std::size_t layer) {
  Moe moe = read_grouped_experts(
      c, {.scale = c.f("routed_scaling_factor"), .groups = 8, .active_groups = 4});
  const auto routed = read_limit(c, "expert_swiglu_limit_list", layer),
             shared = read_limit(c, "share_expert_swiglu_limit_list", layer);
  if (routed != shared) moe.shared_activation = shared.value_or(kernels::Activation{});
  moe.activation = routed.value_or(kernels::Activation{});
  return moe;
}

void refuse_others(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand(c, "score_function", "sigmoid");
  demand(c, "scoring_func", "sigmoid");
  demand(c, "topk_method", "noaux_tc");
  demand(c, "router_dtype", "fp32");
  demand_flag(c, "moe_router_enable_expert_bias", true);
  for (const char* key :
       {"attention_bias", "use_bias", "use_qkv_bias", "use_mla_nope", "use_nGPT", "up_proj_norm",
        "value_norm", "scale_router_input", "multi_gate", "norm_head"}) {
    demand_flag(c, key, false);
  }
  demand(c, "router_type", "topN");
  if (has_delta_nets(c)) {
    demand_flag(c, "no_kda_lora", true);
    demand_flag(c, "use_kda_lora", false);
    demand_flag(c, "rope_interleave", true);
    demand(c, "gated_attention_proj_granularity_type", "head_wise");
  } else {
    demand_flag(c, "linear_silu", false);
    demand_flag(c, "use_linear_silu", false);
    demand_flag(c, "linear_rope", true);
    demand_flag(c, "use_qk_norm", true);
  }
}

Plan plan(const Config& c) {
  refuse_others(c);
  const bool is_delta = has_delta_nets(c);
  Plan p = read_plan(c, "rms_norm_eps");
  if (p.positions_max == 0) p.positions_max = c.i("model_max_length", 0, count_range);
  const Mla mla = read_latents(c, is_delta);
  const std::vector<MixerKind> mixers = read_mixers(c);
  const std::vector<bool> sparse = sparse_after_first(c, 2);
  for (std::size_t i = 0; i < mixers.size(); ++i) {
    const auto layer = static_cast<std::int32_t>(i);
    const Part mixer = mixers[i] == MixerKind::attention ? Part(mla)
                       : is_delta                        ? Part(read_delta(c, p.norm_eps))
                                  : Part(read_lightning(c, p.norm_eps, layer));
    const Part feed_forward =
        sparse[i] ? Part(read_experts(c, i)) : Part(Mlp{.hidden = c.i("intermediate_size")});
    p.layers.push_back({{{.parts = {mixer}}, {.parts = {feed_forward}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"embed", "*.word_embeddings.weight"},
    {"mla.q", "*.layers.{}.attention.q_proj.weight"},
    {"mla.q_a", "*.layers.{}.attention.q_a_proj.weight"},
    {"mla.q_norm", "*.layers.{}.attention.q_a_layernorm.weight"},
    {"mla.q_b", "*.layers.{}.attention.q_b_proj.weight"},
    {"mla.kv_a", "*.layers.{}.attention.kv_a_proj_with_mqa.weight"},
    {"mla.kv_norm", "*.layers.{}.attention.kv_a_layernorm.weight"},
    {"mla.kv_b", "*.layers.{}.attention.kv_b_proj.weight"},
    {"mla.gate", "*.layers.{}.attention.g_proj.weight"},
    {"mla.o", "*.layers.{}.attention.dense.weight"},
    {"delta.q", "*.layers.{}.attention.q_proj.weight"},
    {"delta.k", "*.layers.{}.attention.k_proj.weight"},
    {"delta.v", "*.layers.{}.attention.v_proj.weight"},
    {"delta.q_conv", "*.layers.{}.attention.q_conv1d.weight"},
    {"delta.k_conv", "*.layers.{}.attention.k_conv1d.weight"},
    {"delta.v_conv", "*.layers.{}.attention.v_conv1d.weight"},
    {"delta.a", "*.layers.{}.attention.f_proj.weight"},
    {"delta.z", "*.layers.{}.attention.g_proj.weight"},
    {"delta.b", "*.layers.{}.attention.b_proj.weight"},
    {"delta.a_log", "*.layers.{}.attention.A_log"},
    {"delta.dt_bias", "*.layers.{}.attention.dt_bias"},
    {"delta.norm", "*.layers.{}.attention.o_norm.weight"},
    {"delta.out_proj", "*.layers.{}.attention.o_proj.weight"},
    {"delta.out_proj", "*.layers.{}.attention.dense.weight"},
    {"lightning.qkv", "*.layers.{}.attention.query_key_value.weight"},
    {"lightning.q_norm", "*.layers.{}.attention.query_layernorm.weight"},
    {"lightning.k_norm", "*.layers.{}.attention.key_layernorm.weight"},
    {"lightning.gate", "*.layers.{}.attention.g_proj.weight"},
    {"lightning.norm", "*.layers.{}.attention.g_norm.weight"},
    {"lightning.out_proj", "*.layers.{}.attention.dense.weight"},
    {"moe.correction_bias", "*.layers.{}.mlp.gate.expert_bias"},
    {"moe.correction_bias", "*.layers.{}.mlp.gate.e_score_correction_bias"},
    {"moe.shared_gate", "*.layers.{}.mlp.shared_experts.gate_proj.weight"},
    {"moe.shared_up", "*.layers.{}.mlp.shared_experts.up_proj.weight"},
    {"moe.shared_down", "*.layers.{}.mlp.shared_experts.down_proj.weight"},
    {"head", "lm_head.weight"},
};
constexpr auto names =
    joined(own_names, layer_names, second_norm_names, router_names, single_expert_names);
constexpr std::string_view model_types[] = {"bailing_hybrid"};

}  // namespace

const Family family = {
    .model_types = model_types, .plan = plan, .names = names, .drafts_follow = true};

}  // namespace hyb::models::bailing_hybrid
