// Nemotron-H, Nemotron Nano v2, Nemotron 3: one sub-layer per layer (Mamba-2, attention without
// positions, relu^2 feed-forward or MoE), each after one norm.
#include <fmt/format.h>

#include "core/io/file.h"
#include "models/families.h"
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::nemotron_h {
namespace {

constexpr const char* pattern_key = "hybrid_override_pattern";
constexpr const char* list_key = "layers_block_type";
constexpr kernels::Activation plain_relu2 = {kernels::ActivationFunction::relu2, false};

/// The list of kinds as letters.
std::string read_list(const Config& c, const Keys& keys = {list_key, "layer_types"}) {
  std::string pattern;
  for (const std::string& name : c.strings(keys)) {
    if (name == "mamba" || name == "linear_attention")
      pattern += 'M';
    else if (name == "attention" || name == "full_attention")
      pattern += '*';
    else if (name == "mlp")
      pattern += '-';
    else if (name == "moe")
      pattern += 'E';
    else
      c.fail(keys.spellings.front(), quote_name(name) + " is not a known kind of layer");
  }
  return pattern;
}

/// 'M' Mamba-2, '*' attention, '-' feed-forward, 'E' MoE, one letter per layer.
std::string read_pattern(const Config& c) {
  const bool has_list = c.has({list_key, "layer_types"});
  const std::string pattern = c.has(pattern_key) ? c.s(pattern_key) : read_list(c);
  if (pattern.empty()) c.fail(pattern_key, "names no layer");
  if (has_list && pattern != read_list(c)) {
    c.fail(pattern_key, "does not say the same layers as layers_block_type");
  }
  return pattern;
}

void check_length(const Config& c, const std::string& pattern) {
  constexpr std::size_t layers_max = 4096;
  if (pattern.size() > layers_max) {
    c.fail(pattern_key, fmt::format("has {} layers, at most {}", pattern.size(), layers_max));
  }
  if (!c.has("num_hidden_layers")) return;  // newer tools derive it from the list of layers
  const std::int32_t layers = layer_count(c);
  const auto length = static_cast<std::int32_t>(pattern.size());
  // Some exports count the layers that draft tokens.
  const std::int32_t drafting = c.i("num_nextn_predict_layers", 0, {0, 4096});
  if (length == layers || length + drafting == layers) return;
  c.fail(pattern_key, fmt::format("has {} layers, num_hidden_layers is {}", length, layers));
}

Ssd read_ssd(const Config& c) {
  // `expand` is not looked at: it is wrong in published configs.
  const std::int32_t groups = c.i({"n_groups", "mamba_n_groups", "mamba_num_groups"});
  Ssd ssd = {.heads = c.i("mamba_num_heads"),
             .head_dim = c.i("mamba_head_dim"),
             .state_dim = c.i({"ssm_state_size", "mamba_state_dim"}),
             .shape = {.groups = groups},
             .conv_width = c.i({"conv_kernel", "mamba_d_conv"}, 4, {2, 4}),
             .conv_bias = c.b({"use_conv_bias", "mamba_conv_bias"}, true),
             .norm_groups = groups};
  read_time_step_limit(c, {"mamba_dt_limit", "time_step_limit"}, ssd);
  check(c, ssd);
  return ssd;
}

Moe read_moe(const Config& c) {
  c.i("n_shared_experts", 1, {1, 1});  // always one
  const Moe moe = {
      .experts = c.i({"n_routed_experts", "num_local_experts"}, IntRange{1, 8192}),
      .active = c.i("num_experts_per_tok"),
      .hidden = c.i("moe_intermediate_size"),
      .score = RouterScore::sigmoid,
      .renormalize = c.b("norm_topk_prob", true),
      .renormalize_epsilon = 1e-20F,
      .correction_bias = true,
      .router_f32 = true,
      .scale = static_cast<float>(c.f("routed_scaling_factor", 1.0)),
      .groups = c.i("n_group", 1),
      .active_groups = c.i("topk_group", 1),
      .latent = c.i("moe_latent_size", 0, count_range),
      .activation = plain_relu2,
      .shared_hidden = c.i("moe_shared_expert_intermediate_size"),
  };
  check(c, moe);
  return moe;
}

/// rope_theta is in the published configs and is not used.
Attention read_nemotron_attention(const Config& c) {
  return read_attention(c, c.i({"head_dim", "attention_head_dim"}));
}

Part read_part(const Config& c, char letter, std::size_t layer) {
  switch (letter) {
    case 'M':
      return read_ssd(c);
    case '*':
      return read_nemotron_attention(c);
    case '-':
      return Mlp{.hidden = c.i("intermediate_size"), .activation = plain_relu2};
    case 'E':
      return read_moe(c);
    default:
      break;
  }
  c.fail("hybrid_override_pattern", fmt::format("layer {}: {} is not one of M, *, - and E", layer,
                                                quote_name(std::string_view(&letter, 1))));
}

Plan plan(const Config& c) {
  demand(c, "mlp_hidden_act", "relu2");
  demand(c, "mamba_hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"}) {
    demand_flag(c, key, false);
  }
  demand_flag(c, "residual_in_fp32", false);
  if (c.has("sliding_window")) c.fail("sliding_window", "is not supported");
  const std::string pattern = read_pattern(c);
  check_length(c, pattern);

  Plan p = read_plan(c, {"layer_norm_epsilon", "norm_eps", "rms_norm_eps"});
  p.state_dtype = read_state_dtype(c, "mamba_ssm_cache_dtype");
  for (std::size_t layer = 0; layer < pattern.size(); ++layer) {
    p.layers.push_back({{{.parts = {read_part(c, pattern[layer], layer)}}}});
  }
  return p;
}

/// Attention, then experts: what 3-Super and 3.5-Lightning have.
std::optional<DraftLayer> draft(const Config& c) {
  const char* const key = "mtp_hybrid_override_pattern";
  const char* const list = "mtp_layers_block_type";
  const bool is_known = c.has(key) ? c.s(key) == "*E" : c.has(list) && read_list(c, list) == "*E";
  if (!is_known || c.i("num_nextn_predict_layers", 0, {0, 4096}) != 1) return std::nullopt;
  // Without recurrent layers a sequence has no slot for what the next draft begins with.
  if (read_pattern(c).find('M') == std::string::npos) return std::nullopt;
  Attention attention = read_nemotron_attention(c);
  attention.has_keys_alone = true;
  return DraftLayer{.layers = {{{{.parts = {attention}}}}, {{{.parts = {read_moe(c)}}}}}};
}

constexpr TensorName own_names[] = {
    {"embed", "*.embed_tokens.weight"},
    {"head", "language_model.lm_head.weight"},
    {"attention.q", "*.layers.{}.mixer.q_proj.weight"},
    {"attention.k", "*.layers.{}.mixer.k_proj.weight"},
    {"attention.v", "*.layers.{}.mixer.v_proj.weight"},
    {"attention.o", "*.layers.{}.mixer.o_proj.weight"},
    {"mlp.up", "*.layers.{}.mixer.up_proj.weight"},
    {"mlp.down", "*.layers.{}.mixer.down_proj.weight"},
    {"moe.router", "*.layers.{}.mixer.gate.weight"},
    {"moe.correction_bias", "*.layers.{}.mixer.gate.e_score_correction_bias"},
    {"moe.expert_up", "*.layers.{}.mixer.experts.{}.up_proj.weight"},
    {"moe.expert_down", "*.layers.{}.mixer.experts.{}.down_proj.weight"},
    {"moe.gate_up", "*.layers.{}.mixer.experts.up_proj"},
    {"moe.down", "*.layers.{}.mixer.experts.down_proj"},
    {"moe.latent_in", "*.layers.{}.mixer.fc1_latent_proj.weight"},
    {"moe.latent_out", "*.layers.{}.mixer.fc2_latent_proj.weight"},
    {"moe.shared_up", "*.layers.{}.mixer.shared_experts.up_proj.weight"},
    {"moe.shared_down", "*.layers.{}.mixer.shared_experts.down_proj.weight"},
    {"draft.embedding_norm", "mtp.layers.0.enorm.weight"},
    {"draft.embedding_norm", "language_model.mtp.layers.0.enorm.weight"},
    {"draft.hidden_norm", "mtp.layers.0.hnorm.weight"},
    {"draft.hidden_norm", "language_model.mtp.layers.0.hnorm.weight"},
    {"draft.fc", "mtp.layers.0.eh_proj.weight"},
    {"draft.fc", "language_model.mtp.layers.0.eh_proj.weight"},
    {"draft.norm", "mtp.layers.1.final_layernorm.weight"},
    {"draft.norm", "language_model.mtp.layers.1.final_layernorm.weight"},
};
constexpr auto names = joined(mixer_names, ssd_mixer_names, own_names);
constexpr std::string_view model_types[] = {"nemotron_h"};
// Newer tools write "model" where the published files have "backbone".
constexpr std::string_view trunks[] = {"backbone", "model", "language_model.backbone"};
constexpr std::string_view draft_trunks[] = {"mtp", "language_model.mtp"};
constexpr std::string_view unused[] = {"mtp.", "language_model.mtp.", "vision_model.", "sound_",
                                       "mlp1."};

/// A layer's letter: its tensors say more than the keys, in which a feed-forward can be missing.
char gguf_letter(const GgufKeys& k, std::int64_t layer) {
  constexpr std::pair<const char*, char> marks[] = {{"ssm_in.weight", 'M'},
                                                    {"attn_q.weight", '*'},
                                                    {"ffn_up_exps.weight", 'E'},
                                                    {"ffn_up.weight", '-'}};
  for (const auto& [name, letter] : marks) {
    if (k.tensor_of(layer, name) != nullptr) return letter;
  }
  refuse_gguf(k.files(), fmt::format("block {} has neither ssm_in nor attn_q, ffn_up or "
                                     "ffn_up_exps",
                                     layer));
}

void set_gguf_experts(const GgufKeys& k, GgufConfig& config) {
  set_gguf_experts(k, config, "n_routed_experts", "moe_intermediate_size");
  config.set("moe_shared_expert_intermediate_size", k.integer("expert_shared_feed_forward_length"));
  config.set("n_shared_experts", k.integer("expert_shared_count", 1));
  config.set("norm_topk_prob", k.flag("expert_weights_norm", true));
  config.set("routed_scaling_factor", k.real("expert_weights_scale", 1.0));
  config.set("n_group", k.integer("expert_group_count", 1));
  config.set("topk_group", k.integer("expert_group_used_count", 1));
  config.set("moe_latent_size", k.integer("moe_latent_size", 0));
}

GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "nemotron_h");
  std::string pattern;
  for (std::int64_t i = 0; i < gguf_layers(k); ++i) pattern += gguf_letter(k, i);
  config.set(pattern_key, pattern.c_str());
  const GgufSsmHeads heads = gguf_ssm_heads(k);
  config.set("mamba_num_heads", heads.count);
  config.set("mamba_head_dim", heads.width);
  config.set("ssm_state_size", k.integer("ssm.state_size"));
  config.set("n_groups", k.integer("ssm.group_count"));
  config.set("conv_kernel", k.integer("ssm.conv_kernel"));
  config.set("use_conv_bias", k.any_tensor("ssm_conv1d.bias") != nullptr);
  if (const GgufTensor* up = k.any_tensor("ffn_up.weight")) {
    config.set("intermediate_size", up->shape.front());
  }
  if (pattern.find('E') == std::string::npos) return config;
  set_gguf_experts(k, config);
  const std::int64_t drafting = k.integer("nextn_predict_layers", 0);
  config.set("num_nextn_predict_layers", drafting);
  if (drafting == 1 && k.tensor_of(gguf_layers(k), "ffn_up_exps.weight") != nullptr) {
    config.set("mtp_hybrid_override_pattern", "*E");
  }
  return config;
}

/// Both layers are one block of the file.
std::optional<DraftLayer> gguf_draft(const Config& c) {
  std::optional<DraftLayer> one = draft(c);
  if (!one) return one;
  one->layers = {{{one->layers[0].blocks[0], one->layers[1].blocks[0]}}};
  return one;
}

constexpr TensorName gguf_own_names[] = {
    {"block1.norm", "blk.{}.post_attention_norm.weight"},
    {"moe.gate_up", "blk.{}.ffn_up_exps.weight"},
    {"moe.latent_in", "blk.{}.ffn_latent_down.weight"},
    {"moe.latent_in", "blk.{}.ffn_latent_in.weight"},
    {"moe.latent_out", "blk.{}.ffn_latent_up.weight"},
    {"moe.latent_out", "blk.{}.ffn_latent_out.weight"},
};
constexpr auto gguf_all_names =
    joined(gguf_own_names, gguf_names, gguf_mamba_names, gguf_expert_names, gguf_draft_names);
constexpr Family gguf_family = {.plan = plan, .names = gguf_all_names, .draft = gguf_draft};

constexpr GgufArchitecture architectures[] = {
    {.name = "nemotron_h", .config = gguf_config, .family = gguf_family},
    {.name = "nemotron_h_moe", .config = gguf_config, .family = gguf_family}};

}  // namespace

const Family family = {model_types, plan,   names,        table_of<architectures>,
                       trunks,      unused, draft_trunks, draft};

}  // namespace hyb::models::nemotron_h
