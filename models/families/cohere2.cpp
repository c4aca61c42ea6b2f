// Command R7B, Command A (Cohere 2): attention and feed-forward side by side after one layer norm;
// most layers have windows and a rope over pairs of neighbours, the others see everything and have
// no positions.
#include <fmt/format.h>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::cohere2 {
namespace {

/// Values that transformers takes where a key is absent.
constexpr std::string_view cohere2_defaults = R"({
  "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
  "num_attention_heads": 64, "max_position_embeddings": 8192, "layer_norm_eps": 1e-5
})";

/// transformers divides, whatever head_dim says.
std::int32_t read_even_head_dim(const Config& c) {
  const std::int32_t width = c.i("hidden_size"), heads = c.i("num_attention_heads");
  const std::int32_t head_dim = width / heads;
  if (head_dim * heads != width) {
    c.fail("hidden_size", fmt::format("{} is no multiple of {} heads", width, heads));
  }
  if (c.i("head_dim", head_dim) != head_dim) {
    c.fail("head_dim", fmt::format("must be hidden_size / num_attention_heads, {}", head_dim));
  }
  return head_dim;
}

Attention read_cohere2_attention(const Config& c) {
  Attention attention = read_attention(c, read_even_head_dim(c));
  attention.rope = read_rope(c, attention.head_dim, 1.0, 1e4);
  if (attention.rope->rotary_dim() != attention.head_dim) {
    c.fail("partial_rotary_factor", "below 1 is not supported");
  }
  attention.rope->neighbours = true;
  return attention;
}

Plan plan_cohere2(const Config& given) {
  const Config c = given.with_defaults(cohere2_defaults);
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "use_qk_norm", false);
  demand_flag(c, "use_parallel_block", true);
  demand_flag(c, "use_gated_activation", true);
  Plan p = read_plan(c, "layer_norm_eps");
  p.final_norm = Norm::layer;
  p.tied_head = c.b("tie_word_embeddings", true);
  p.logits_scale = static_cast<float>(c.f("logit_scale", 0.0625));
  const std::int32_t pattern = c.i("sliding_window_pattern", 4);
  const Attention common = read_cohere2_attention(c);
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  for (const std::int32_t window :
       layer_windows(c, 4096, [&](std::int32_t layer) { return (layer + 1) % pattern == 0; })) {
    Attention attention = common;
    attention.window = window;
    if (window == 0) attention.rope.reset();
    p.layers.push_back({{{.norm = Norm::layer, .parts = {attention, mlp}}}});
  }
  return p;
}

constexpr std::string_view cohere2_types[] = {"cohere2"};
constexpr std::string_view cohere2_trunks[] = {"model"};

GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "cohere2");
  set_gguf_windows(k, config, 4, k.integer("attention.sliding_window"));
  config.set("layer_norm_eps", k.real("attention.layer_norm_epsilon"));
  config.set("logit_scale", k.real("logit_scale"));
  return config;
}

constexpr GgufArchitecture architectures[] = {
    {.name = "cohere2",
     .config = gguf_config,
     .family = {.plan = plan_cohere2, .names = gguf_names}}};

}  // namespace

const Family family = {cohere2_types, plan_cohere2, trunk_names, table_of<architectures>,
                       cohere2_trunks};

}  // namespace hyb::models::cohere2
