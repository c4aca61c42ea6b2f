// Gemma 2 and 3 (its text part): norms before and after attention and feed-forward, windows in most
// layers; Gemma 2 caps scores and logits, Gemma 3 norms q and k and has another rope where a layer
// sees everything.
#include <fmt/format.h>

#include <cmath>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::gemma {
namespace {

/// Values that transformers takes where a key is absent: published files of Gemma 3 leave out most.
constexpr std::string_view gemma3_defaults = R"({
  "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256
})";

Attention read_gemma_attention(const Config& c) {
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "use_bidirectional_attention", false);
  Attention attention = read_attention(c, c.i("head_dim", 256));
  const double scalar = c.f("query_pre_attn_scalar", 256.0);
  if (scalar <= 0) c.fail("query_pre_attn_scalar", fmt::format("must be above 0, is {}", scalar));
  attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  return attention;
}

/// Layers of attention and feed-forward, each between two norms.
Plan sandwich_plan(const Config& c, double usual_logits_cap) {
  Plan p = read_plan(c, "rms_norm_eps");
  p.tied_head = c.b("tie_word_embeddings", true);
  p.final_norm = Norm::rms_1p;
  p.embedding_times_root = true;
  p.logits_cap = read_cap(c, "final_logit_softcapping", usual_logits_cap);
  return p;
}

Layer sandwich(const Part& attention, const Part& feed_forward) {
  const auto block = [](const Part& part) {
    return Block{.norm = Norm::rms_1p, .parts = {part}, .post_norm = Norm::rms_1p};
  };
  return {{block(attention), block(feed_forward)}};
}

Mlp read_gelu_mlp(const Config& c) {
  demand(c, "hidden_activation", "gelu_pytorch_tanh");
  return {.hidden = c.i("intermediate_size"),
          .activation = {.function = kernels::ActivationFunction::gelu_tanh}};
}

Plan plan_gemma2(const Config& c) {
  Plan p = sandwich_plan(c, 30.0);
  Attention attention = read_gemma_attention(c);
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.score_cap = read_cap(c, "attn_logit_softcapping", 50.0);
  for (const std::int32_t window :
       layer_windows(c, 4096, [](std::int32_t layer) { return layer % 2 == 1; })) {
    attention.window = window;
    p.layers.push_back(sandwich(attention, read_gelu_mlp(c)));
  }
  return p;
}

Plan plan_gemma3(const Config& given) {
  const Config c = given.with_defaults(gemma3_defaults);
  demand_absent(c, "attn_logit_softcapping");
  Plan p = sandwich_plan(c, 0.0);
  Attention attention = read_gemma_attention(c);
  attention.qk_norm = Norm::rms_1p;
  const std::int32_t pattern = c.i({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  for (const std::int32_t window :
       layer_windows(c, 4096, [&](std::int32_t layer) { return (layer + 1) % pattern == 0; })) {
    attention.window = window;
    attention.rope = read_gemma_rope(c, attention.head_dim, window == 0);
    p.layers.push_back(sandwich(attention, read_gelu_mlp(c)));
  }
  return p;
}

constexpr std::string_view gemma2_types[] = {"gemma2"};
constexpr std::string_view gemma3_types[] = {"gemma3", "gemma3_text"};
constexpr auto names = joined(trunk_names, qk_norm_names, gemma_norm_names);
constexpr std::string_view trunks[] = {"model", "model.language_model", "language_model.model"};
constexpr std::string_view unused[] = {"vision_tower.", "multi_modal_projector.",
                                       "model.vision_tower.", "model.multi_modal_projector."};

/// The file does not say what scores are divided by: only the 27B have another divisor.
GgufConfig gguf_gemma_config(const GgufKeys& k, const char* model_type, std::int64_t period,
                             std::int64_t layers_of_27b, std::int64_t usual_window) {
  GgufConfig config = gguf_common_config(k, model_type);
  set_gguf_windows(k, config, period, usual_window);
  config.set("query_pre_attn_scalar",
             gguf_layers(k) == layers_of_27b
                 ? k.integer("embedding_length") / k.uniform("attention.head_count")
                 : gguf_head_dim(k));
  return config;
}

void set_caps(const GgufKeys& k, GgufConfig& config) {
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    if (k.has(key)) config.set(key, k.real(key));
  }
}

GgufConfig gguf_gemma2_config(const GgufKeys& k) {
  GgufConfig config = gguf_gemma_config(k, "gemma2", 2, 46, 4096);
  set_caps(k, config);
  return config;
}

GgufConfig gguf_gemma3_config(const GgufKeys& k) {
  GgufConfig config = gguf_gemma_config(k, "gemma3_text", 6, 62, 0);
  config.set("rope_local_base_freq",
             k.real("rope.freq_base_swa", k.real("rope.local.freq_base", 10000.0)));
  // ollama's own converter has other keys, leaves out what all Gemma 3 share, and adds a limit of
  // logits that none has (its llama-ollama-compat.cpp).
  const bool is_of_ollama = k.has("rope.global.freq_base") || k.has("mm.tokens_per_image");
  if (!is_of_ollama) {
    set_caps(k, config);
    return config;
  }
  config.set("rope_theta", k.real("rope.freq_base", k.real("rope.global.freq_base", 1e6)));
  config.set("rms_norm_eps", k.real("attention.layer_norm_rms_epsilon", 1e-6));
  constexpr std::int64_t long_context = 131072;
  if (!k.has("rope.scaling.factor") && k.integer("context_length") >= long_context) {
    config.set_linear_rope(8.0);
  }
  return config;
}

constexpr auto gguf_gemma_names = joined(gguf_names, gguf_post_norm_names);

template <Plan (*plan)(const Config&)>
constexpr Family gguf_family = {.plan = [](const Config& c) { return with_whole_norms(plan(c)); },
                                .names = gguf_gemma_names};
constexpr GgufArchitecture gguf2[] = {
    {.name = "gemma2", .config = gguf_gemma2_config, .family = gguf_family<plan_gemma2>}};
constexpr GgufArchitecture gguf3[] = {
    {.name = "gemma3", .config = gguf_gemma3_config, .family = gguf_family<plan_gemma3>}};

}  // namespace

const Family gemma2 = {gemma2_types, plan_gemma2, names, table_of<gguf2>, trunks};
const Family gemma3 = {gemma3_types, plan_gemma3, names, table_of<gguf3>, trunks, unused};

}  // namespace hyb::models::gemma
