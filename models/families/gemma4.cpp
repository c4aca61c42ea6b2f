// Gemma 4 (E2B, E4B, 12B, 26B-A4B, 31B; the text part): norms before and after attention and
// feed-forward and a factor per layer; values are normed, and in full layers may be made of the
// keys; wider heads and a proportional rope where a layer sees everything. In the small ones the
// last layers read the keys and values of an earlier one, and every layer has an embedding of its
// own. 26B-A4B has experts beside the feed-forward, each with norms of its own.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/strings.h"
#include "core/io/file.h"
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::gemma4 {
namespace {

/// Values that transformers takes where a key is absent.
constexpr std::string_view defaults = R"({
  "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512
})";

/// The 12B with images and sounds as plain tokens: without embeddings per layer.
bool is_unified(const Config& c) { return c.model_type().starts_with("gemma4_unified"); }

/// Full layers have heads of their own.
struct FullHeads {
  std::int32_t dim, kv_heads;

  bool operator==(const FullHeads&) const = default;
};

/// Reads them as newer files write them: index of a layer -> its values. All full layers must have
/// the same, the others none.
FullHeads read_layer_values(const Config& c, const std::vector<std::int32_t>& windows,
                            FullHeads common) {
  std::vector<FullHeads> heads(windows.size(), common);
  for (const auto& [layer, own] : c.objects(layer_values_key)) {
    const auto found = parse_number<std::size_t>(layer);  // also with zeros before it
    const std::size_t index = found.value_or(heads.size());
    if (index >= heads.size()) c.fail(layer_values_key, quote_name(layer) + " is no layer");
    for (const std::string& key : own.keys()) {
      if (key == "head_dim" || key == "num_key_value_heads") continue;
      own.fail(quote_name(key), "of a single layer is not supported");
    }
    heads[index] = {.dim = own.i("head_dim", common.dim),
                    .kv_heads = own.i("num_key_value_heads", common.kv_heads)};
  }
  const FullHeads full = heads.back();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (heads[i] == (windows[i] == 0 ? full : common)) continue;
    c.fail(layer_values_key, fmt::format("layer {} has other heads than those of its kind", i));
  }
  return full;
}

FullHeads read_full_heads(const Config& c, const std::vector<std::int32_t>& windows) {
  FullHeads heads = {.dim = c.i("head_dim"), .kv_heads = c.i("num_key_value_heads")};
  if (c.has(layer_values_key)) return read_layer_values(c, windows, heads);
  heads.dim = c.i("global_head_dim");
  if (c.b("attention_k_eq_v", false)) {
    heads.kv_heads = c.i("num_global_key_value_heads", heads.kv_heads);
  }
  return heads;
}

/// The attention of full layers, which have heads of their own, or of those with windows.
Attention read_kind(const Config& c, const std::optional<FullHeads>& own) {
  const bool is_full = own.has_value(), keys_are_values = is_full && c.b("attention_k_eq_v", false);
  const std::int32_t head_dim = is_full ? own->dim : c.i("head_dim");
  Attention attention = read_attention(c, head_dim);
  if (is_full) {
    attention.kv_heads = own->kv_heads;
    check(c, attention);
  }
  attention.scale = 1.0F;
  attention.qk_norm = Norm::rms;
  attention.value_norm = true;
  attention.keys_are_values = keys_are_values;
  if (!is_full) {
    attention.rope = read_rope(c, head_dim, 1.0, 1e4, "sliding_attention");
  } else if (c.has("rope_parameters")) {
    attention.rope = read_rope(c, head_dim, 1.0, 1e6, "full_attention");
  } else {
    attention.rope = proportional_rope(head_dim, 1e6, 0.25);
  }
  return attention;
}

Mlp read_mlp(const Config& c, bool is_shared) {
  demand(c, "hidden_activation", "gelu_pytorch_tanh");
  const bool is_wide = is_shared && c.b("use_double_wide_mlp", false);
  return {.hidden = (is_wide ? 2 : 1) * c.i("intermediate_size"),
          .activation = {.function = kernels::ActivationFunction::gelu_tanh}};
}

Moe read_gemma4_experts(const Config& c) {
  const Moe moe = {.experts = c.i(expert_count_keys),
                   .active = c.i("top_k_experts"),
                   .hidden = c.i("moe_intermediate_size"),
                   .score = RouterScore::softmax,
                   .renormalize = true,
                   .activation = {.function = kernels::ActivationFunction::gelu_tanh},
                   .router_norm = true,
                   .expert_scale = true};
  check(c, moe);
  return moe;
}

std::optional<LayerInputs> read_layer_inputs(const Config& c) {
  const std::int32_t width =
      c.i("hidden_size_per_layer_input", is_unified(c) ? 0 : 256, count_range);
  if (width == 0) return std::nullopt;
  constexpr const char* key = "vocab_size_per_layer_input";
  const LayerInputs inputs = {.vocab = c.i(key, 262144), .width = width};
  if (inputs.vocab < c.i("vocab_size")) {
    c.fail(key, fmt::format("leaves tokens without an embedding for every layer: it is {}",
                            inputs.vocab));
  }
  return inputs;
}

Plan plan(const Config& given) {
  const Config c = given.with_defaults(defaults);
  demand_flag(c, "attention_bias", false);
  if (c.s("use_bidirectional_attention", "vision") != "vision") {
    c.fail("use_bidirectional_attention", "is not supported for text");
  }
  Plan p = read_plan(c.without(layer_values_key), "rms_norm_eps");
  p.tied_head = c.b("tie_word_embeddings", true);
  p.embedding_times_root = true;
  p.logits_cap = read_cap(c, "final_logit_softcapping", 0.0);
  std::vector<std::int32_t> windows =
      layer_windows(c, 512, [](std::int32_t layer) { return layer % 6 == 5; });
  windows.back() = 0;  // transformers forces it, whatever layer_types says
  const Attention full = read_kind(c, read_full_heads(c, windows));
  const Attention sliding = read_kind(c, std::nullopt);
  const std::vector<std::int32_t> sources = read_kv_sources(c, windows, 0);
  p.layer_inputs = read_layer_inputs(c);
  const bool has_experts = c.b("enable_moe_block", false);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    Attention attention = windows[i] == 0 ? full : sliding;
    attention.window = windows[i];
    attention.kv_of = sources[i];
    const Part feed_forward = read_mlp(c, sources[i] >= 0);
    Layer layer = {{{.parts = {attention}, .post_norm = Norm::rms},
                    {.parts = {feed_forward}, .post_norm = Norm::rms}}};
    if (has_experts) {
      layer.blocks[1] = {.norm = Norm::none,
                         .parts = {feed_forward, read_gemma4_experts(c)},
                         .post_norm = Norm::rms,
                         .norms_parts = true};
    }
    if (p.layer_inputs) {
      const LayerInput input = {.width = p.layer_inputs->width,
                                .layer = static_cast<std::int32_t>(i)};
      layer.blocks.push_back({.norm = Norm::none, .parts = {input}, .post_norm = Norm::rms});
    }
    layer.blocks.back().has_factor = true;
    p.layers.push_back(std::move(layer));
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"block1.factor", "*.layers.{}.layer_scalar"},
    {"block2.factor", "*.layers.{}.layer_scalar"},
    {"part0.norm", "*.layers.{}.pre_feedforward_layernorm.weight"},
    {"part0.post_norm", "*.layers.{}.post_feedforward_layernorm_1.weight"},
    {"part1.norm", "*.layers.{}.pre_feedforward_layernorm_2.weight"},
    {"part1.post_norm", "*.layers.{}.post_feedforward_layernorm_2.weight"},
    {"moe.router", "*.layers.{}.router.proj.weight"},
    {"moe.router_norm", "*.layers.{}.router.scale"},
    {"moe.expert_scale", "*.layers.{}.router.per_expert_scale"},
    {"moe.gate_up", "*.layers.{}.experts.gate_up_proj"},
    {"moe.down", "*.layers.{}.experts.down_proj"},
};
constexpr auto names =
    joined(trunk_names, qk_norm_names, gemma_norm_names, gemma_input_names, own_names);
constexpr std::string_view model_types[] = {"gemma4", "gemma4_text", "gemma4_unified",
                                            "gemma4_unified_text"};
constexpr std::string_view trunks[] = {"model", "model.language_model"};
constexpr std::string_view unused[] = {"model.vision_tower.", "model.embed_vision.",
                                       "model.audio_tower.", "model.embed_audio."};

/// Heads of full layers are the file's usual ones, those with windows have lengths of their own.
GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "gemma4_text");
  set_gguf_gemma_layers(k, config);
  const std::int64_t head_dim = k.integer("attention.key_length_swa");
  config.set("head_dim", head_dim);
  for (const char* key : {"attention.value_length_swa", "rope.dimension_count_swa"}) {
    if (k.integer(key, head_dim) != head_dim) {
      k.fail(key, fmt::format("must be {}, as {}", head_dim, k.name("attention.key_length_swa")));
    }
  }
  const std::vector<std::int64_t> kv_heads = k.each_block("attention.head_count_kv");
  const std::vector<std::int64_t> windows = k.each_block("attention.sliding_window_pattern");
  Json full_heads = Json::object();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool is_last = i + 1 == windows.size();  // which is full, whatever is stated
    if (windows[i] != 0 && !is_last) {
      config.set("num_key_value_heads", kv_heads[i]);
      continue;
    }
    full_heads[std::to_string(i)] = {{"head_dim", gguf_head_dim(k)},
                                     {"num_key_value_heads", kv_heads[i]}};
    const auto layer = static_cast<std::int64_t>(i);
    if (full_heads.size() == 1) {
      config.set("attention_k_eq_v", k.tensor_of(layer, "attn_v.weight") == nullptr);
    }
  }
  config.set(layer_values_key, std::move(full_heads));
  const std::vector<std::int64_t> widths = k.each_block("feed_forward_length");
  config.set("intermediate_size", widths.front());
  config.set("use_double_wide_mlp", widths.back() != widths.front());
  if (k.integer("expert_count", 0) == 0) return config;
  config.set("enable_moe_block", true);
  set_gguf_experts(k, config, "num_experts", "moe_intermediate_size");
  config.set("top_k_experts", k.uniform("expert_used_count"));
  return config;
}

constexpr TensorName gguf_own_names[] = {
    {"block1.factor", "blk.{}.layer_output_scale.weight"},
    {"block2.factor", "blk.{}.layer_output_scale.weight"},
    {"part0.norm", "blk.{}.ffn_norm.weight"},
    {"part0.post_norm", "blk.{}.post_ffw_norm_1.weight"},
    {"part1.norm", "blk.{}.pre_ffw_norm_2.weight"},
    {"part1.post_norm", "blk.{}.post_ffw_norm_2.weight"},
    {"moe.router_norm", "blk.{}.ffn_gate_inp.scale"},
    {"moe.expert_scale", "blk.{}.ffn_down_exps.scale"},
};
constexpr auto gguf_all_names =
    joined(gguf_names, gguf_post_norm_names, gguf_input_names, gguf_expert_names, gguf_own_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "gemma4",
     .config = gguf_config,
     .family = {.plan = [](const Config& c) { return with_separate_experts(plan(c)); },
                .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>, trunks, unused};

}  // namespace hyb::models::gemma4
