// LFM3: gated short convolutions, and attention with windows or without, whose heads have a gate
// each; a norm before and one after every part.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/common.h"

namespace hyb::models::lfm3 {
namespace {

/// Values that transformers takes where a key is absent.
constexpr std::string_view defaults = R"({
  "vocab_size": 128000, "hidden_size": 2048, "intermediate_size": 7680, "num_hidden_layers": 24,
  "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
  "max_position_embeddings": 128000
})";

constexpr const char* full = "full_attention";
constexpr const char* sliding = "sliding_attention";
constexpr const char* conv = "conv";

/// The kind of every layer; without layer_types every fourth layer sees everything, and between
/// these, but for the first, every fourth one has a window.
std::vector<std::string> read_kinds(const Config& c) {
  const std::int32_t layers = layer_count(c);
  if (c.has("layer_types")) {
    mixer_kinds(c, {conv, sliding});
    return c.strings("layer_types");
  }
  std::vector<std::string> kinds;
  for (std::int32_t i = 0; i < layers; ++i) {
    kinds.emplace_back(i % 4 == 2 ? full : i % 4 == 0 && i > 0 ? sliding : conv);
  }
  return kinds;
}

/// A published config.json has partial_rotary_factor 0.5 beside rope_type "default". transformers
/// ignores the factor there and turns all dims; whether the weights were trained so or with half of
/// them, nothing says: such a file is refused.
RopeParameters read_kind_rope(const Config& c, std::int32_t head_dim, const std::string& kind) {
  if (!c.has({"rope_parameters", "rope_scaling"})) {
    demand_absent(c, "rope_theta");
    demand_absent(c, "partial_rotary_factor");
    if (kind == full) return proportional_rope(head_dim, 1e6, 0.5);
    return RopeParameters::plain(head_dim, 1e4);
  }
  const RopeParameters rope = read_rope(c, head_dim, 1.0, 1e6, kind);
  if (rope.rotary_dim() != head_dim) {
    c.fail("rope_parameters",
           fmt::format("{}: partial_rotary_factor is below 1, and rope_type is not "
                       "\"proportional\"; transformers ignores the factor beside \"default\", and "
                       "it is not known which of the two the weights want: set rope_type to "
                       "\"proportional\" to turn that part of the dims, or take the factor out to "
                       "turn them all",
                       kind));
  }
  return rope;
}

Attention read_kind_attention(const Config& c, const std::string& kind) {
  Attention attention = read_attention(c, c.i("head_dim"));
  attention.rope = read_kind_rope(c, attention.head_dim, kind);
  attention.qk_norm = Norm::rms;
  attention.head_gate = c.b("use_attention_gate", true);
  if (kind == sliding) {
    constexpr const char* key = "sliding_window";
    if (c.is_null(key)) c.fail(key, "is null, but layers have windows");
    attention.window = c.i(key, 256);
  }
  return attention;
}

ShortConv read_conv(const Config& c) {
  constexpr const char* key = "conv_L_cache";
  const ShortConv read = {.channels = c.i("hidden_size"), .conv_width = c.i(key, 7, {2, 7})};
  if (read.conv_width == 5 || read.conv_width == 6) {
    c.fail(key, fmt::format("is {}; 2, 3, 4 and 7 are supported", read.conv_width));
  }
  return read;
}

Plan plan(const Config& given) {
  const Config c = given.with_defaults(defaults);
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "conv_bias", false);
  Plan p = read_plan(c, {"norm_eps", "rms_norm_eps"});
  p.tied_head = c.b("tie_word_embeddings", true);
  std::optional<Norm> post_norm;
  if (c.b("use_sandwich_norm", true)) post_norm = Norm::rms;
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  for (const std::string& kind : read_kinds(c)) {
    const Part mixer = kind == conv ? Part(read_conv(c)) : Part(read_kind_attention(c, kind));
    p.layers.push_back(
        {{{.parts = {mixer}, .post_norm = post_norm}, {.parts = {mlp}, .post_norm = post_norm}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"block0.post_norm", "model.layers.{}.post_operator_norm.weight"},
    {"block1.post_norm", "model.layers.{}.post_ffn_norm.weight"},
    {"attention.gate", "model.layers.{}.self_attn.gate_proj.weight"},
    {"attention.gate", "model.layers.{}.self_attn.g_proj.weight"},
};
constexpr auto names = joined(model_names, attention_names, qk_norm_names, lfm_names, own_names);
constexpr std::string_view model_types[] = {"lfm3"};

}  // namespace

const Family family = {model_types, plan, names};

}  // namespace hyb::models::lfm3
