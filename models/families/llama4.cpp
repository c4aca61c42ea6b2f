// Llama 4, the text part: layers with rope see chunks of positions, the others everything, with a
// factor on their queries; experts see an input that is multiplied by the router's score.
#include <fmt/format.h>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::llama4 {
namespace {

std::vector<bool> read_chunked_layers(const Config& c, const std::vector<bool>& turning) {
  if (!c.has("layer_types")) return turning;
  std::vector<bool> chunked;
  for (const MixerKind kind : mixer_kinds(c, {"chunked_attention"})) {
    chunked.push_back(kind == MixerKind::recurrent);
  }
  return chunked;
}

std::vector<bool> read_expert_layers(const Config& c) {
  if (c.has("moe_layers")) return layers_at(c, "moe_layers");
  const std::int32_t step = c.i("interleave_moe_layer_step", 1);
  std::vector<bool> sparse;
  for (std::int32_t i = 1; i <= layer_count(c); ++i) sparse.push_back(i % step == 0);
  return sparse;
}

kernels::QueryScale read_temperature(const Config& c) {
  if (!c.b("attn_temperature_tuning", true)) return {};
  return {.beta = static_cast<float>(c.f("attn_scale", 0.1)),
          .period = c.i("floor_scale", 8192),
          .offset = 1,
          .is_rounded = false};
}

Moe read_weighed_experts(const Config& c) {
  const std::int32_t width = c.i("intermediate_size");
  const Moe moe = {.experts = c.i("num_local_experts", 16, {1, 8192}),
                   .active = c.i("num_experts_per_tok", 1),
                   .hidden = width,
                   .score = RouterScore::sigmoid,
                   .shared_hidden = width,
                   .transposed = true,
                   .weighs_input = true};
  check(c, moe);
  if (moe.active != 1) {
    c.fail("num_experts_per_tok", fmt::format("{} is not supported, only 1", moe.active));
  }
  return moe;
}

RopeParameters read_paired_rope(const Config& c, std::int32_t head_dim) {
  RopeParameters rope = read_rope(c, head_dim, 1.0, 500000.0);
  if (rope.rotary_dim() != head_dim) c.fail("partial_rotary_factor", "below 1 is not supported");
  rope.neighbours = true;
  return rope;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  Plan p = read_plan(c, "rms_norm_eps");
  const Attention common = read_attention(c, read_head_dim(c));
  const RopeParameters rope = read_paired_rope(c, common.head_dim);
  const std::vector<bool> turning = read_rope_layers(c), sparse = read_expert_layers(c);
  const std::vector<bool> chunked = read_chunked_layers(c, turning);
  for (std::size_t i = 0; i < turning.size(); ++i) {
    Attention attention = common;
    if (chunked[i]) attention.chunk = c.i("attention_chunk_size", 8192);
    if (turning[i]) {
      attention.rope = rope;
      attention.weightless_norm = c.b("use_qk_norm", true);
    } else {
      attention.query_scale = read_temperature(c);
    }
    const Part ffn = sparse[i] ? Part(read_weighed_experts(c))
                               : Part(Mlp{.hidden = c.i("intermediate_size_mlp")});
    p.layers.push_back({{{.parts = {attention}}, {.parts = {ffn}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"head", "language_model.lm_head.weight"},
    {"mlp.gate", "*.layers.{}.feed_forward.gate_proj.weight"},
    {"mlp.up", "*.layers.{}.feed_forward.up_proj.weight"},
    {"mlp.down", "*.layers.{}.feed_forward.down_proj.weight"},
    {"moe.router", "*.layers.{}.feed_forward.router.weight"},
    {"moe.gate_up_transposed", "*.layers.{}.feed_forward.experts.gate_up_proj"},
    {"moe.down_transposed", "*.layers.{}.feed_forward.experts.down_proj"},
    {"moe.shared_gate", "*.layers.{}.feed_forward.shared_expert.gate_proj.weight"},
    {"moe.shared_up", "*.layers.{}.feed_forward.shared_expert.up_proj.weight"},
    {"moe.shared_down", "*.layers.{}.feed_forward.shared_expert.down_proj.weight"},
};
constexpr auto names = joined(llama_names, own_names);
constexpr std::string_view model_types[] = {"llama4", "llama4_text"};
constexpr std::string_view trunks[] = {"model", "language_model.model"};
constexpr std::string_view unused[] = {"vision_model.", "multi_modal_projector."};

/// Chunks, layers without rope and the queries' factor are not in the file: they are Llama 4's.
GgufConfig gguf_config(const GgufKeys& k) {
  constexpr std::int64_t experts_without_norm = 128;  // Maverick
  GgufConfig config = gguf_common_config(k, "llama4_text");
  for (const char* key :
       {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"}) {
    if (k.has(key)) k.fail(key, "only Scout's and Maverick's layers are supported");
  }
  config.set("intermediate_size_mlp", k.uniform("feed_forward_length"));
  set_gguf_experts(k, config, "num_local_experts", "intermediate_size");
  config.set("interleave_moe_layer_step", k.integer("interleave_moe_layer_step"));
  config.set("use_qk_norm", k.integer("expert_count") != experts_without_norm);
  return config;
}

Plan gguf_plan(const Config& c) {
  Plan p = with_separate_experts(plan(c));
  change_parts(p.layers, [](auto& part) {
    if constexpr (requires { part.transposed; }) part.transposed = false;
  });
  return p;
}

constexpr auto gguf_own_names = joined(gguf_names, gguf_expert_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "llama4",
     .config = gguf_config,
     .family = {.plan = gguf_plan, .names = gguf_own_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>, trunks, unused};

}  // namespace hyb::models::llama4
