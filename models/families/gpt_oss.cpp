// gpt-oss: attention with sinks and biases, every other layer with a window, and experts with a
// clamped gate.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::gpt_oss {
namespace {

float read_positive(const Config& c, std::string_view key, double fallback) {
  const double value = c.f(Keys{key}, fallback);
  if (value <= 0 || value > 1e6) {
    c.fail(key, fmt::format("must be above 0 and at most 1e6, is {}", value));
  }
  return static_cast<float>(value);
}

Part read_clamped_experts(const Config& c) {
  Moe moe = {.experts = c.i({"num_local_experts", "num_experts"}, 128, {1, 8192}),
             .active = c.i({"num_experts_per_tok", "experts_per_token"}, 4),
             .hidden = c.i("intermediate_size"),
             .score = RouterScore::softmax_of_selected,
             .biases = true,
             .alternating = true};
  moe.activation = {.function = kernels::ActivationFunction::clamped_swiglu,
                    .gated = true,
                    .alpha = read_positive(c, "swiglu_alpha", 1.702),
                    .limit = read_positive(c, "swiglu_limit", 7.0)};
  check(c, moe);
  return moe;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", true);
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, c.i("head_dim", 64));
  if (!c.has("rope_parameters") && !c.has("rope_scaling")) {
    c.fail("rope_parameters", "is missing; it says how gpt-oss stretches its positions");
  }
  attention.rope = read_rope(c, attention.head_dim, 1.0, 150000.0);
  attention.sinks = attention.biases = attention.output_bias = true;
  const Part experts = read_clamped_experts(c);
  for (const std::int32_t window :
       layer_windows(c, 128, [](std::int32_t layer) { return layer % 2 == 1; })) {
    attention.window = window;
    p.layers.push_back({{{.parts = {attention}}, {.parts = {experts}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"attention.o_bias", "model.layers.{}.self_attn.o_proj.bias"},
    {"attention.sinks", "model.layers.{}.self_attn.sinks"},
    {"moe.router", "model.layers.{}.mlp.router.weight"},
    {"moe.router_bias", "model.layers.{}.mlp.router.bias"},
    {"moe.gate_up", "model.layers.{}.mlp.experts.gate_up_proj_blocks"},
    {"moe.gate_up_transposed", "model.layers.{}.mlp.experts.gate_up_proj"},
    {"moe.gate_up_bias", "model.layers.{}.mlp.experts.gate_up_proj_bias"},
    {"moe.down", "model.layers.{}.mlp.experts.down_proj_blocks"},
    {"moe.down_transposed", "model.layers.{}.mlp.experts.down_proj"},
    {"moe.down_bias", "model.layers.{}.mlp.experts.down_proj_bias"},
};
constexpr auto names = joined(llama_names, bias_names, own_names);
constexpr std::string_view model_types[] = {"gpt_oss"};

/// Without the limit of the experts' gates, which all published models have as the plan does.
GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "gpt_oss", "yarn");
  set_gguf_experts(k, config, "num_local_experts", "intermediate_size");
  set_gguf_windows(k, config, 2, k.integer("attention.sliding_window"));
  config.set("attention_bias", true);
  config.set_rope("truncate", false);  // as it was trained; the file does not say
  return config;
}

/// ollama's own files, whose oldest have rows of gate and up in turns, and another MXFP4.
GgufConfig gguf_config_of_ollama(const GgufKeys& k) {
  if (k.has_tensor("blk.0.ffn_gate_up_exps.weight")) {
    refuse_gguf(k.files(),
                "ollama's first form of gpt-oss is not supported; pull the model again, "
                "or take a file of another publisher");
  }
  return gguf_config(k);
}

Plan gguf_plan(const Config& c) { return with_separate_experts(plan(c)); }

constexpr TensorName gguf_gpt_oss_names[] = {
    {"block1.norm", "blk.{}.post_attention_norm.weight"},
    {"attention.o", "blk.{}.attn_out.weight"},  // this and two more as ollama spells them
    {"attention.o_bias", "blk.{}.attn_output.bias"},
    {"attention.o_bias", "blk.{}.attn_out.bias"},
    {"attention.sinks", "blk.{}.attn_sinks.weight"},
    {"attention.sinks", "blk.{}.attn_sinks"},
    {"moe.router_bias", "blk.{}.ffn_gate_inp.bias"},
    {"moe.gate_up_bias", "blk.{}.ffn_gate_up_exps.bias"},
    {"moe.gate_bias", "blk.{}.ffn_gate_exps.bias"},
    {"moe.up_bias", "blk.{}.ffn_up_exps.bias"},
    {"moe.down_bias", "blk.{}.ffn_down_exps.bias"},
};
constexpr auto gguf_own_names =
    joined(gguf_names, gguf_bias_names, gguf_expert_names, gguf_gpt_oss_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "gpt-oss",
     .config = gguf_config,
     .family = {.plan = gguf_plan, .names = gguf_own_names}},
    {.name = "gptoss",
     .config = gguf_config_of_ollama,
     .family = {.plan = gguf_plan, .names = gguf_own_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::gpt_oss
