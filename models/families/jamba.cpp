// Jamba: Mamba-1 layers with norms of dt, B and C, a few attention layers without rope, and a
// feed-forward or experts in every layer.
#include <fmt/format.h>

#include <algorithm>

#include "models/families/gguf.h"

namespace hyb::models::jamba {
namespace {

/// Layers that `what`_layer_period and `what`_layer_offset name.
struct Every {
  std::int32_t period, offset;
  bool has(std::int32_t layer) const { return layer % period == offset; }
};

Every read_every(const Config& c, const std::string& what, std::int32_t period,
                 std::int32_t offset) {
  const std::string period_key = what + "_layer_period", offset_key = what + "_layer_offset";
  const Every every = {c.i(Keys{period_key}, period), c.i(Keys{offset_key}, offset, count_range)};
  if (every.offset >= every.period) {
    c.fail(offset_key, fmt::format("must be below {}, which is {}", period_key, every.period));
  }
  return every;
}

S6 read_s6(const Config& c, const Plan& p) {
  const S6 s6 = {.channels = static_cast<std::int32_t>(expanded_channels(c, p.width).count),
                 .state_dim = c.i("mamba_d_state", 16),
                 .dt_rank = read_step_rank(c, "mamba_dt_rank"),
                 .conv_width = c.i("mamba_d_conv", 4, {2, 4}),
                 .conv_bias = c.b("mamba_conv_bias", true),
                 .norms = S6Norms::weighted,
                 .dt_norm_eps = p.norm_eps};
  check(c, s6);
  return s6;
}

/// The weights of the chosen experts are those of all, not divided by their sum.
Part read_experts(const Config& c) {
  const Moe moe = {.experts = c.i(expert_count_keys, 16, {1, 8192}),
                   .active = c.i("num_experts_per_tok", 2),
                   .hidden = c.i("intermediate_size"),
                   .score = RouterScore::softmax};
  if (moe.experts == 1) return Mlp{.hidden = moe.hidden};
  check(c, moe);
  return moe;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "mamba_proj_bias", false);
  demand_flag(c, "mamba_inner_layernorms", true);
  for (const char* key : {"sliding_window", "layers_block_type", "layer_types"}) {
    demand_absent(c, key);
  }
  Plan p = read_plan(c, "rms_norm_eps");
  const Every attention = read_every(c, "attn", 8, 4), sparse = read_every(c, "expert", 2, 1);
  const Part mixers[] = {read_s6(c, p), read_attention(c, read_head_dim(c))};
  const Part ffns[] = {Mlp{.hidden = c.i("intermediate_size")}, read_experts(c)};
  for (std::int32_t layer = 0; layer < layer_count(c); ++layer) {
    p.layers.push_back({{{.parts = {mixers[attention.has(layer) ? 1 : 0]}},
                         {.parts = {ffns[sparse.has(layer) ? 1 : 0]}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"s6.in_proj", "model.layers.{}.mamba.in_proj.weight"},
    {"s6.conv_weight", "model.layers.{}.mamba.conv1d.weight"},
    {"s6.conv_bias", "model.layers.{}.mamba.conv1d.bias"},
    {"s6.x_proj", "model.layers.{}.mamba.x_proj.weight"},
    {"s6.dt_proj", "model.layers.{}.mamba.dt_proj.weight"},
    {"s6.dt_bias", "model.layers.{}.mamba.dt_proj.bias"},
    {"s6.a_log", "model.layers.{}.mamba.A_log"},
    {"s6.d", "model.layers.{}.mamba.D"},
    {"s6.out_proj", "model.layers.{}.mamba.out_proj.weight"},
    {"s6.dt_norm", "model.layers.{}.mamba.dt_layernorm.weight"},
    {"s6.b_norm", "model.layers.{}.mamba.b_layernorm.weight"},
    {"s6.c_norm", "model.layers.{}.mamba.c_layernorm.weight"},
    {"moe.router", "model.layers.{}.feed_forward.router.weight"},
    {"moe.expert_gate", "model.layers.{}.feed_forward.experts.{}.gate_proj.weight"},
    {"moe.expert_up", "model.layers.{}.feed_forward.experts.{}.up_proj.weight"},
    {"moe.expert_down", "model.layers.{}.feed_forward.experts.{}.down_proj.weight"},
    {"moe.gate_up", "model.layers.{}.feed_forward.experts.gate_up_proj"},
    {"moe.down", "model.layers.{}.feed_forward.experts.down_proj"},
};
constexpr auto names = joined(model_names, attention_names, pre_ff_names, own_names);
constexpr std::string_view model_types[] = {"jamba"};

/// Keys `what`_layer_period and `what`_layer_offset that name these layers and no others.
void set_every(const GgufKeys& k, const std::string& what, const std::vector<std::int64_t>& layers,
               GgufConfig& config) {
  const std::int64_t count = gguf_layers(k);
  const std::int64_t offset = layers.empty() ? count : layers[0];
  const std::int64_t period = layers.size() > 1 ? layers[1] - offset : count + 1;
  std::vector<std::int64_t> named;
  for (std::int64_t layer = offset; layer < count; layer += period) named.push_back(layer);
  if (named != layers || offset >= period) {
    refuse_gguf(k.files(),
                fmt::format("{}_layer: layers without a period are not supported", what));
  }
  config.set(what + "_layer_period", period);
  config.set(what + "_layer_offset", offset);
}

GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "jamba");
  std::vector<std::int64_t> attention, sparse;
  for (std::int64_t layer = 0; layer < gguf_layers(k); ++layer) {
    if (k.tensor_of(layer, "attn_q.weight") != nullptr) attention.push_back(layer);
    if (k.tensor_of(layer, "ffn_gate_inp.weight") != nullptr) sparse.push_back(layer);
  }
  set_every(k, "attn", attention, config);
  set_every(k, "expert", sparse, config);
  config.set("num_experts", sparse.empty() ? 1 : k.integer("expert_count"));
  config.set("num_experts_per_tok", k.integer("expert_used_count", 1));
  const std::int64_t width = std::max<std::int64_t>(k.integer("embedding_length"), 1);
  config.set("mamba_expand", k.integer("ssm.inner_size") / width);
  config.set("mamba_d_state", k.integer("ssm.state_size"));
  config.set("mamba_d_conv", k.integer("ssm.conv_kernel"));
  config.set("mamba_dt_rank", k.integer("ssm.time_step_rank"));
  config.set("mamba_conv_bias", k.any_tensor("ssm_conv1d.bias") != nullptr);
  return config;
}

Plan gguf_plan(const Config& c) { return with_separate_experts(plan(c)); }

constexpr auto gguf_all_names = joined(gguf_names, gguf_s6_names, gguf_expert_names);
constexpr GgufArchitecture architectures[] = {
    {.name = "jamba",
     .config = gguf_config,
     .family = {.plan = gguf_plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::jamba
