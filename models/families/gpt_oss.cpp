// gpt-oss: attention with sinks and biases, every other layer with a window, and experts with a
// clamped gate.
#include <fmt/format.h>

#include "models/families/common.h"

namespace hyb::models {
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
  attention.sinks = attention.biases = true;
  const Part experts = read_clamped_experts(c);
  for (const std::int32_t window :
       layer_windows(c, 128, [](std::int32_t layer) { return layer % 2 == 1; })) {
    attention.window = window;
    p.layers.push_back({{{.parts = {attention}}, {.parts = {experts}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"attention.q_bias", "model.layers.{}.self_attn.q_proj.bias"},
    {"attention.k_bias", "model.layers.{}.self_attn.k_proj.bias"},
    {"attention.v_bias", "model.layers.{}.self_attn.v_proj.bias"},
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
constexpr auto names = joined(model_names, attention_names, llama_names, own_names);
constexpr std::string_view model_types[] = {"gpt_oss"};

}  // namespace

const Family gpt_oss = {.model_types = model_types, .plan = plan, .names = names};

}  // namespace hyb::models
