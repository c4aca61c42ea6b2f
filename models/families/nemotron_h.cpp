// Nemotron-H, Nemotron Nano v2, Nemotron 3: one sub-layer per layer (Mamba-2, attention without
// positions, relu^2 feed-forward or MoE), each behind one norm.
#include <fmt/format.h>

#include <cmath>

#include "core/io/quote_name.h"
#include "models/families.h"
#include "models/families/rules.h"

namespace hyb::models {
namespace {

/// 'M' Mamba-2, '*' attention, '-' feed-forward, 'E' MoE, one letter per layer.
std::string read_pattern(const Config& c) {
  if (c.has("hybrid_override_pattern")) return c.s("hybrid_override_pattern");
  std::string pattern;
  for (const std::string& name : c.strings({"layers_block_type", "layer_types"})) {
    if (name == "mamba" || name == "linear_attention")
      pattern += 'M';
    else if (name == "attention" || name == "full_attention")
      pattern += '*';
    else if (name == "mlp")
      pattern += '-';
    else if (name == "moe")
      pattern += 'E';
    else
      c.fail("layers_block_type", quote_name(name) + " is not a known kind of layer");
  }
  return pattern;
}

void check_length(const Config& c, const std::string& pattern) {
  const std::int32_t layers = layer_count(c);
  const auto length = static_cast<std::int32_t>(std::min<std::size_t>(pattern.size(), 1U << 20));
  // Some exports count the layers that draft tokens.
  const std::int32_t drafting = c.i("num_nextn_predict_layers", 0, {0, 4096});
  if (length == layers || length + drafting == layers) return;
  c.fail("hybrid_override_pattern",
         fmt::format("has {} layers, num_hidden_layers is {}", length, layers));
}

Attention read_attention(const Config& c) {
  const std::int32_t head_dim = c.i({"head_dim", "attention_head_dim"});
  const std::int32_t heads = c.i("num_attention_heads");
  // rope_theta stands in the published configs and is not used.
  const Attention attention = {.heads = heads,
                               .kv_heads = c.i("num_key_value_heads", heads),
                               .head_dim = head_dim,
                               .scale = static_cast<float>(1.0 / std::sqrt(head_dim)),
                               .rope = {},
                               .qk_norm = {}};
  check(c, attention);
  return attention;
}

Ssd read_ssd(const Config& c) {
  // `expand` is not looked at: it is wrong in published configs.
  const std::int32_t groups = c.i({"n_groups", "mamba_num_groups"});
  Ssd ssd = {.heads = c.i("mamba_num_heads"),
             .head_dim = c.i("mamba_head_dim"),
             .state_dim = c.i({"ssm_state_size", "mamba_state_dim"}),
             .groups = groups,
             .conv_width = c.i("conv_kernel", 4, {2, 4}),
             .conv_bias = c.b("use_conv_bias", true),
             .norm_groups = groups};
  read_time_step_limit(c, ssd);
  check(c, ssd);
  return ssd;
}

Moe read_moe(const Config& c) {
  const bool has_shared = c.i("n_shared_experts", 1, {0, 1}) == 1;
  const Moe moe = {
      .experts = c.i("n_routed_experts", IntRange{1, 8192}),
      .active = c.i("num_experts_per_tok"),
      .hidden = c.i("moe_intermediate_size"),
      .score = RouterScore::sigmoid,
      .renormalize = c.b("norm_topk_prob", true),
      .correction_bias = true,
      .scale = static_cast<float>(c.f("routed_scaling_factor", 1.0)),
      .groups = c.i("n_group", 1),
      .active_groups = c.i("topk_group", 1),
      .latent = c.i("moe_latent_size", 0, count_range),
      .activation = Activation::relu2,
      .gated = false,
      .shared_hidden = has_shared ? c.i("moe_shared_expert_intermediate_size") : 0,
  };
  check(c, moe);
  return moe;
}

Part read_part(const Config& c, char letter, std::size_t layer) {
  switch (letter) {
    case 'M':
      return read_ssd(c);
    case '*':
      return read_attention(c);
    case '-':
      return Mlp{
          .hidden = c.i("intermediate_size"), .activation = Activation::relu2, .gated = false};
    case 'E':
      return read_moe(c);
    default:
      break;
  }
  c.fail("hybrid_override_pattern", fmt::format("layer {}: {} is not one of M, *, - and E", layer,
                                                quote_name(std::string_view(&letter, 1))));
}

Plan plan(const Config& c) {
  refuse_quantized(c);
  demand(c, "mlp_hidden_act", "relu2");
  demand(c, "mamba_hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"}) {
    demand_flag(c, key, false);
  }
  const std::string pattern = read_pattern(c);
  check_length(c, pattern);

  Plan p = {.family = c.model_type(),
            .vocab = c.i("vocab_size"),
            .width = c.i("hidden_size"),
            .norm_eps = read_norm_eps(c),
            .tied_head = c.b("tie_word_embeddings", false),
            .weight_dtype = c.dtype({"dtype", "torch_dtype"}, DType::bf16),
            .state_dtype = c.dtype("mamba_ssm_cache_dtype", DType::f32),
            .positions_max = c.i("max_position_embeddings", 0, count_range),
            .layers = {}};
  for (std::size_t layer = 0; layer < pattern.size(); ++layer) {
    p.layers.push_back({{{.parts = {read_part(c, pattern[layer], layer)}}}});
  }
  return p;
}

// Newer tools write "model." where the published files have "backbone.".
constexpr TensorName names[] = {
    {"embed", "backbone.embeddings.weight"},
    {"embed", "model.embeddings.weight"},
    {"final_norm", "backbone.norm_f.weight"},
    {"final_norm", "model.norm_f.weight"},
    {"head", "lm_head.weight"},
    {"block0.norm", "backbone.layers.{}.norm.weight"},
    {"block0.norm", "model.layers.{}.norm.weight"},
    {"attention.q", "backbone.layers.{}.mixer.q_proj.weight"},
    {"attention.q", "model.layers.{}.mixer.q_proj.weight"},
    {"attention.k", "backbone.layers.{}.mixer.k_proj.weight"},
    {"attention.k", "model.layers.{}.mixer.k_proj.weight"},
    {"attention.v", "backbone.layers.{}.mixer.v_proj.weight"},
    {"attention.v", "model.layers.{}.mixer.v_proj.weight"},
    {"attention.o", "backbone.layers.{}.mixer.o_proj.weight"},
    {"attention.o", "model.layers.{}.mixer.o_proj.weight"},
    {"ssd.in_proj", "backbone.layers.{}.mixer.in_proj.weight"},
    {"ssd.in_proj", "model.layers.{}.mixer.in_proj.weight"},
    {"ssd.conv_weight", "backbone.layers.{}.mixer.conv1d.weight"},
    {"ssd.conv_weight", "model.layers.{}.mixer.conv1d.weight"},
    {"ssd.conv_bias", "backbone.layers.{}.mixer.conv1d.bias"},
    {"ssd.conv_bias", "model.layers.{}.mixer.conv1d.bias"},
    {"ssd.a_log", "backbone.layers.{}.mixer.A_log"},
    {"ssd.a_log", "model.layers.{}.mixer.A_log"},
    {"ssd.d", "backbone.layers.{}.mixer.D"},
    {"ssd.d", "model.layers.{}.mixer.D"},
    {"ssd.dt_bias", "backbone.layers.{}.mixer.dt_bias"},
    {"ssd.dt_bias", "model.layers.{}.mixer.dt_bias"},
    {"ssd.norm", "backbone.layers.{}.mixer.norm.weight"},
    {"ssd.norm", "model.layers.{}.mixer.norm.weight"},
    {"ssd.out_proj", "backbone.layers.{}.mixer.out_proj.weight"},
    {"ssd.out_proj", "model.layers.{}.mixer.out_proj.weight"},
    {"mlp.up", "backbone.layers.{}.mixer.up_proj.weight"},
    {"mlp.up", "model.layers.{}.mixer.up_proj.weight"},
    {"mlp.down", "backbone.layers.{}.mixer.down_proj.weight"},
    {"mlp.down", "model.layers.{}.mixer.down_proj.weight"},
    {"moe.router", "backbone.layers.{}.mixer.gate.weight"},
    {"moe.router", "model.layers.{}.mixer.gate.weight"},
    {"moe.correction_bias", "backbone.layers.{}.mixer.gate.e_score_correction_bias"},
    {"moe.correction_bias", "model.layers.{}.mixer.gate.e_score_correction_bias"},
    {"moe.expert_up", "backbone.layers.{}.mixer.experts.{}.up_proj.weight"},
    {"moe.expert_up", "model.layers.{}.mixer.experts.{}.up_proj.weight"},
    {"moe.expert_down", "backbone.layers.{}.mixer.experts.{}.down_proj.weight"},
    {"moe.expert_down", "model.layers.{}.mixer.experts.{}.down_proj.weight"},
    {"moe.latent_in", "backbone.layers.{}.mixer.fc1_latent_proj.weight"},
    {"moe.latent_in", "model.layers.{}.mixer.fc1_latent_proj.weight"},
    {"moe.latent_out", "backbone.layers.{}.mixer.fc2_latent_proj.weight"},
    {"moe.latent_out", "model.layers.{}.mixer.fc2_latent_proj.weight"},
    {"moe.shared_up", "backbone.layers.{}.mixer.shared_experts.up_proj.weight"},
    {"moe.shared_up", "model.layers.{}.mixer.shared_experts.up_proj.weight"},
    {"moe.shared_down", "backbone.layers.{}.mixer.shared_experts.down_proj.weight"},
    {"moe.shared_down", "model.layers.{}.mixer.shared_experts.down_proj.weight"},
};
constexpr std::string_view model_types[] = {"nemotron_h"};

}  // namespace

const Family nemotron_h = {model_types, plan, names, false};

}  // namespace hyb::models
