// Qwen3-Next and Qwen3.5: three gated-delta layers to one gated-attention layer, each followed by a
// feed-forward or a sparse MoE.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::qwen3_next {
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
  const DeltaNet delta = {.shape = {.key_heads = c.i("linear_num_key_heads")},
                          .value_heads = c.i("linear_num_value_heads"),
                          .key_dim = c.i("linear_key_head_dim"),
                          .value_dim = c.i("linear_value_head_dim"),
                          .conv_width = c.i("linear_conv_kernel_dim", 4, {2, 4})};
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

/// Returns which layers have experts; the others have a plain feed-forward. Qwen3.5 has them in all
/// layers or in none.
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
    {"delta.conv_weight", "*.layers.{}.linear_attn.conv1d.weight"},
    {"delta.a_log", "*.layers.{}.linear_attn.A_log"},
    {"delta.dt_bias", "*.layers.{}.linear_attn.dt_bias"},
    {"delta.norm", "*.layers.{}.linear_attn.norm.weight"},
    {"delta.out_proj", "*.layers.{}.linear_attn.out_proj.weight"},
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
constexpr auto qwen3_common_names = joined(llama_names, qk_norm_names, router_names, common_names);
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
// The layout in which each family is published comes first.
constexpr auto qwen3_5_names = joined(qwen3_common_names, plain_delta_names, grouped_delta_names,
                                      stacked_expert_names, single_expert_names);
constexpr auto qwen3_next_names =
    joined(qwen3_common_names, grouped_delta_names, single_expert_names, stacked_expert_names);
constexpr std::string_view qwen3_5_types[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe",
                                              "qwen3_5_moe_text"};
constexpr std::string_view qwen3_next_types[] = {"qwen3_next"};
constexpr std::string_view trunks[] = {"model", "model.language_model", "language_model.model"};
constexpr std::string_view draft_trunks[] = {"mtp", "model.mtp"};
constexpr std::string_view unused[] = {"mtp.", "model.mtp.", "model.visual.", "visual."};

/// "linear_attention" or "full_attention", by a list or by a period.
std::vector<std::string> gguf_layer_types(const GgufKeys& k) {
  const std::int64_t layers = gguf_layers(k), period = k.integer("full_attention_interval", 4);
  if (period < 1) {
    k.fail("full_attention_interval", fmt::format("must be 1 or more, is {}", period));
  }
  constexpr const char* key = "attention.recurrent_layers";
  const auto listed = k.has(key) ? k.each_block(key) : std::vector<std::int64_t>();
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool is_recurrent =
        listed.empty() ? (i + 1) % period != 0 : listed[static_cast<std::size_t>(i)] != 0;
    types.push_back(is_recurrent ? "linear_attention" : "full_attention");
  }
  return types;
}

void set_gguf_experts(const GgufKeys& k, GgufConfig& config) {
  set_gguf_experts(k, config, "num_experts", "moe_intermediate_size");
  const GgufTensor* const shared = k.any_tensor("ffn_up_shexp.weight");
  config.set("shared_expert_intermediate_size",
             k.integer("expert_shared_feed_forward_length", shared ? shared->shape.front() : 0));
}

GgufConfig gguf_common(const GgufKeys& k, const char* model_type) {
  GgufConfig config = gguf_common_config(k, model_type);
  const GgufSsmHeads value_heads = gguf_ssm_heads(k, "values");
  config.set("linear_num_key_heads", k.integer("ssm.group_count"));
  config.set("linear_num_value_heads", value_heads.count);
  config.set("linear_key_head_dim", k.integer("ssm.state_size"));
  config.set("linear_value_head_dim", value_heads.width);
  config.set("linear_conv_kernel_dim", k.integer("ssm.conv_kernel"));
  config.set("layer_types", gguf_layer_types(k));
  const std::int64_t layers = gguf_layers(k);
  config.set("mtp_num_hidden_layers", k.integer("nextn_predict_layers", 0));
  config.set("mtp_use_dedicated_embeddings",
             k.tensor_of(layers, "nextn.embed_tokens.weight") != nullptr ||
                 k.tensor_of(layers, "nextn.shared_head_head.weight") != nullptr);
  return config;
}

GgufConfig gguf_next_config(const GgufKeys& k) {
  GgufConfig config = gguf_common(k, "qwen3_next");
  if (k.integer("expert_count", 0) == 0) return config;
  set_gguf_experts(k, config);
  std::vector<std::int64_t> dense;
  for (std::int64_t i = 0; i < gguf_layers(k); ++i) {
    if (k.tensor_of(i, "ffn_gate_inp.weight") == nullptr) dense.push_back(i);
  }
  config.set("mlp_only_layers", dense);
  return config;
}

GgufConfig gguf_35_config(const GgufKeys& k) {
  refuse_gguf_experts(k);
  return gguf_common(k, "qwen3_5_text");
}

GgufConfig gguf_35_moe_config(const GgufKeys& k) {
  GgufConfig config = gguf_common(k, "qwen3_5_moe_text");
  set_gguf_experts(k, config);
  return config;
}

Plan gguf_plan(const Config& c) { return with_separate_experts(with_whole_norms(plan(c))); }

/// The converter stores heads of values [key head][j] as [j][key head].
Plan gguf_35_plan(const Config& c) {
  Plan p = gguf_plan(c);
  change_parts(p.layers, [](auto& part) {
    if constexpr (requires { part.shape.tiled; }) {
      part.shape.tiled = part.value_heads != part.shape.key_heads;
    }
  });
  return p;
}

std::optional<DraftLayer> gguf_draft(const Config& c) { return whole_and_separate(draft(c)); }

constexpr TensorName gguf_own_names[] = {
    {"block1.norm", "blk.{}.post_attention_norm.weight"},
    {"delta.qkv", "blk.{}.attn_qkv.weight"},
    {"delta.z", "blk.{}.attn_gate.weight"},
    {"delta.qkvz", "blk.{}.ssm_in.weight"},
    {"delta.conv_weight", "blk.{}.ssm_conv1d.weight"},
    {"delta.rate", "blk.{}.ssm_a"},
    {"delta.dt_bias", "blk.{}.ssm_dt.bias"},
    {"delta.dt_bias", "blk.{}.ssm_dt"},  // as ollama spells it
    {"delta.norm", "blk.{}.ssm_norm.weight"},
    {"delta.out_proj", "blk.{}.ssm_out.weight"},
};
constexpr TensorName gguf_next_gates[] = {{"delta.ba", "blk.{}.ssm_ba.weight"}};
constexpr TensorName gguf_35_gates[] = {
    {"delta.b", "blk.{}.ssm_beta.weight"},
    {"delta.a", "blk.{}.ssm_alpha.weight"},
};
constexpr auto gguf_next_names =
    joined(gguf_own_names, gguf_next_gates, gguf_names, gguf_expert_names, gguf_draft_names);
constexpr auto gguf_35_names =
    joined(gguf_own_names, gguf_35_gates, gguf_names, gguf_expert_names, gguf_draft_names);
constexpr Family gguf_35_family = {
    .plan = gguf_35_plan, .names = gguf_35_names, .draft = gguf_draft};

constexpr Family gguf_next_family = {
    .plan = gguf_plan, .names = gguf_next_names, .draft = gguf_draft};
constexpr GgufArchitecture gguf_35[] = {
    {.name = "qwen35", .config = gguf_35_config, .family = gguf_35_family},
    {.name = "qwen35moe", .config = gguf_35_moe_config, .family = gguf_35_family}};
constexpr GgufArchitecture gguf_next[] = {
    {.name = "qwen3next", .config = gguf_next_config, .family = gguf_next_family}};

/// Both spell their tensors alike, each in a layout of its own.
constexpr Family family_of(std::span<const std::string_view> model_types,
                           std::span<const TensorName> names,
                           std::span<const GgufArchitecture> (*gguf)()) {
  return {model_types, plan, names, gguf, trunks, unused, draft_trunks, draft};
}

}  // namespace

const Family qwen3_5 = family_of(qwen3_5_types, qwen3_5_names, table_of<gguf_35>);
const Family qwen3_next = family_of(qwen3_next_types, qwen3_next_names, table_of<gguf_next>);

}  // namespace hyb::models::qwen3_next
