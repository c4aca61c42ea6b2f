// Qwen3-Next and Qwen3.5: three gated-delta layers to one gated-attention layer, each followed by a
// feed-forward or a sparse MoE.
#include <algorithm>
#include <optional>
#include <vector>

#include "models/families/common.h"

namespace hyb::models {
namespace {

std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has({"layer_types", "layers_block_type"})) return mixer_kinds(c);
  const std::int32_t interval = c.i("full_attention_interval", 4);
  std::vector<MixerKind> kinds;
  for (std::int32_t layer = 0; layer < layer_count(c); ++layer) {
    const bool is_full = (layer + 1) % interval == 0;
    kinds.push_back(is_full ? MixerKind::attention : MixerKind::recurrent);
  }
  return kinds;
}

Attention read_gated_attention(const Config& c) {
  Attention attention = read_attention(c, c.i("head_dim"));
  attention.rope = read_rope(c, attention.head_dim, 0.25);
  attention.qk_norm = Norm::rms_1p;
  attention.output_gate = true;
  return attention;
}

DeltaNet read_delta(const Config& c) {
  const DeltaNet delta = {
      .key_heads = c.i("linear_num_key_heads"),
      .value_heads = c.i("linear_num_value_heads"),
      .key_dim = c.i("linear_key_head_dim"),
      .value_dim = c.i("linear_value_head_dim"),
      .conv_width = c.i("linear_conv_kernel_dim", 4, {2, 4}),
  };
  check(c, delta);
  return delta;
}

/// Qwen3.5, whose experts are always renormalised and whose layers all are of one kind.
bool is_qwen35(const Config& c) { return c.model_type().starts_with("qwen3_5"); }

Moe read_moe(const Config& c) {
  // No fallback: a missing key must not turn the shared expert off.
  const std::int32_t shared = c.i("shared_expert_intermediate_size", count_range);
  const Moe moe = {
      .experts = c.i(expert_count_keys, IntRange{1, 8192}),
      .active = c.i("num_experts_per_tok"),
      .hidden = c.i("moe_intermediate_size"),
      .score = RouterScore::softmax,
      .renormalize = is_qwen35(c) || c.b("norm_topk_prob", true),
      .shared_hidden = shared,
      .shared_gate = shared > 0,
  };
  check(c, moe);
  return moe;
}

/// Which layers have experts; the others have a plain feed-forward. Qwen3.5 has them in all layers
/// or in none.
std::vector<bool> read_sparse_layers(const Config& c) {
  if (!is_qwen35(c)) return sparse_layers(c);
  const auto layers = static_cast<std::size_t>(layer_count(c));
  return std::vector<bool>(layers, c.model_type().starts_with("qwen3_5_moe"));
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  if (!c.is_text("output_gate_type", "silu")) demand(c, "output_gate_type", "swish");
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "attn_output_gate", true);
  Plan p = read_plan(c, "rms_norm_eps");
  p.final_norm = Norm::rms_1p;
  p.state_dtype = read_state_dtype(c, "mamba_ssm_dtype");
  const Attention attention = read_gated_attention(c);
  const DeltaNet delta = read_delta(c);
  const std::vector<MixerKind> mixers = read_mixers(c);
  const std::vector<bool> sparse = read_sparse_layers(c);
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    const bool is_full = mixers[layer] == MixerKind::attention;
    const Part mixer = is_full ? Part(attention) : Part(delta);
    const Part feed_forward =
        sparse[layer] ? Part(read_moe(c)) : Part(Mlp{.hidden = c.i("intermediate_size")});
    p.layers.push_back({{{.norm = Norm::rms_1p, .parts = {mixer}},
                         {.norm = Norm::rms_1p, .parts = {feed_forward}}}});
  }
  return p;
}

/// A layer of gated attention, with experts where the model has some.
std::optional<DraftLayer> draft(const Config& c) {
  // Published Qwen3-Next has the layer and no key for it.
  const std::int32_t layers = c.i("mtp_num_hidden_layers", is_qwen35(c) ? 0 : 1, {0, 64});
  const std::vector<MixerKind> mixers = read_mixers(c);
  // Without recurrent layers a sequence has no slot for what the next draft begins with.
  if (layers != 1 || std::ranges::count(mixers, MixerKind::recurrent) == 0) return std::nullopt;
  if (c.b("mtp_use_dedicated_embeddings", false)) return std::nullopt;
  Attention attention = read_gated_attention(c);
  attention.has_keys_alone = true;
  const bool has_experts =
      is_qwen35(c) ? read_sparse_layers(c).front() : c.i(expert_count_keys, 0, {0, 8192}) > 0;
  const Part feed_forward =
      has_experts ? Part(read_moe(c)) : Part(Mlp{.hidden = c.i("intermediate_size")});
  return DraftLayer{.norm = Norm::rms_1p,
                    .layers = {{{{.norm = Norm::rms_1p, .parts = {attention}},
                                 {.norm = Norm::rms_1p, .parts = {feed_forward}}}}}};
}

constexpr TensorName common_names[] = {
    {"head", "language_model.lm_head.weight"},
    {"block1.norm", "*.layers.{}.post_attention_layernorm.weight"},
    {"attention.q_norm", "*.layers.{}.self_attn.q_norm.weight"},
    {"attention.k_norm", "*.layers.{}.self_attn.k_norm.weight"},
    {"delta.conv_weight", "*.layers.{}.linear_attn.conv1d.weight"},
    {"delta.a_log", "*.layers.{}.linear_attn.A_log"},
    {"delta.dt_bias", "*.layers.{}.linear_attn.dt_bias"},
    {"delta.norm", "*.layers.{}.linear_attn.norm.weight"},
    {"delta.out_proj", "*.layers.{}.linear_attn.out_proj.weight"},
    {"moe.router", "*.layers.{}.mlp.gate.weight"},
    {"moe.shared_gate", "*.layers.{}.mlp.shared_expert.gate_proj.weight"},
    {"moe.shared_up", "*.layers.{}.mlp.shared_expert.up_proj.weight"},
    {"moe.shared_down", "*.layers.{}.mlp.shared_expert.down_proj.weight"},
    {"moe.shared_expert_gate", "*.layers.{}.mlp.shared_expert_gate.weight"},
    {"draft.embedding_norm", "mtp.pre_fc_norm_embedding.weight"},
    {"draft.embedding_norm", "model.mtp.pre_fc_norm_embedding.weight"},
    {"draft.hidden_norm", "mtp.pre_fc_norm_hidden.weight"},
    {"draft.hidden_norm", "model.mtp.pre_fc_norm_hidden.weight"},
    {"draft.fc", "mtp.fc.weight"},
    {"draft.fc", "model.mtp.fc.weight"},
    {"draft.norm", "mtp.norm.weight"},
    {"draft.norm", "model.mtp.norm.weight"},
};
constexpr TensorName grouped_delta_names[] = {
    {"delta.qkvz", "*.layers.{}.linear_attn.in_proj_qkvz.weight"},
    {"delta.ba", "*.layers.{}.linear_attn.in_proj_ba.weight"},
};
constexpr TensorName plain_delta_names[] = {
    {"delta.qkv", "*.layers.{}.linear_attn.in_proj_qkv.weight"},
    {"delta.z", "*.layers.{}.linear_attn.in_proj_z.weight"},
    {"delta.b", "*.layers.{}.linear_attn.in_proj_b.weight"},
    {"delta.a", "*.layers.{}.linear_attn.in_proj_a.weight"},
};
constexpr TensorName single_expert_names[] = {
    {"moe.expert_gate", "*.layers.{}.mlp.experts.{}.gate_proj.weight"},
    {"moe.expert_up", "*.layers.{}.mlp.experts.{}.up_proj.weight"},
    {"moe.expert_down", "*.layers.{}.mlp.experts.{}.down_proj.weight"},
};
constexpr TensorName stacked_expert_names[] = {
    {"moe.gate_up", "*.layers.{}.mlp.experts.gate_up_proj"},
    {"moe.down", "*.layers.{}.mlp.experts.down_proj"},
};
// The layout in which each family is published comes first.
constexpr auto qwen3_5_names =
    joined(trunk_names, common_names, plain_delta_names, grouped_delta_names, stacked_expert_names,
           single_expert_names);
constexpr auto qwen3_next_names = joined(trunk_names, common_names, grouped_delta_names,
                                         single_expert_names, stacked_expert_names);
constexpr std::string_view qwen3_5_types[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe",
                                              "qwen3_5_moe_text"};
constexpr std::string_view qwen3_next_types[] = {"qwen3_next"};
constexpr std::string_view trunks[] = {"model", "model.language_model", "language_model.model"};
constexpr std::string_view draft_trunks[] = {"mtp", "model.mtp"};
constexpr std::string_view unused[] = {"mtp.", "model.mtp.", "model.visual.", "visual."};

}  // namespace

const Family qwen3_5 = {.model_types = qwen3_5_types,
                        .plan = plan,
                        .names = qwen3_5_names,
                        .trunks = trunks,
                        .draft_trunks = draft_trunks,
                        .draft = draft,
                        .unused = unused};

const Family qwen3_next = {.model_types = qwen3_next_types,
                           .plan = plan,
                           .names = qwen3_next_names,
                           .trunks = trunks,
                           .draft_trunks = draft_trunks,
                           .draft = draft,
                           .unused = unused};

}  // namespace hyb::models
