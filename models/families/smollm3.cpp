// SmolLM3: Llama's layers, of which every fourth has no positions; such a layer may have a window.
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::smollm3 {
namespace {

/// The values that transformers takes where a key is absent.
constexpr std::string_view smollm3_defaults = R"({
  "tie_word_embeddings": true
})";

/// transformers takes 4 heads of keys where the key is absent, and those of the queries for a null.
constexpr std::int32_t usual_kv_heads = 4;

Plan plan(const Config& given) {
  const Config c = given.with_defaults(smollm3_defaults);
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  if (!c.has("num_key_value_heads") && !c.is_null("num_key_value_heads")) {
    attention.kv_heads = usual_kv_heads;
    check(c, attention);
  }
  const RopeParameters rope = read_rope(c, attention.head_dim, 1.0, 2e6);
  p.layers = llama_layers(c, attention);
  const std::vector<bool> turning = read_rope_layers(c);
  const bool has_windows = c.b("use_sliding_window", false) && c.has("sliding_window");
  const std::vector<std::int32_t> windows = layer_windows(c, 0, [&](std::int32_t layer) {
    return !has_windows || turning[static_cast<std::size_t>(layer)];
  });
  for (std::size_t i = 0; i < turning.size(); ++i) {
    auto& own = std::get<Attention>(p.layers[i].blocks[0].parts[0]);
    if (turning[i]) own.rope = rope;
    own.window = windows[i];
  }
  return p;
}

constexpr std::string_view model_types[] = {"smollm3"};

/// The layers without positions are not in the file: llama.cpp takes every fourth.
GgufConfig gguf_config(const GgufKeys& k) { return gguf_common_config(k, "smollm3"); }

constexpr GgufArchitecture architectures[] = {
    {.name = "smollm3",
     .config = gguf_config,
     .family = {.plan = [](const Config& c) { return with_neighbours(plan(c)); },
                .names = gguf_names}}};

}  // namespace

const Family family = {model_types, plan, llama_names, table_of<architectures>};

}  // namespace hyb::models::smollm3
