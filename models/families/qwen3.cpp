// Qwen3 and Qwen3-MoE: attention with rope and norms of q and k, with windows from a layer on where
// the configuration says so; a feed-forward or a sparse MoE in every layer.
#include <algorithm>
#include <vector>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::qwen3 {
namespace {

/// For every layer the window of its attention; 0: none.
std::vector<std::int32_t> read_windows(const Config& c) {
  const auto layers = static_cast<std::size_t>(layer_count(c));
  if (!c.b("use_sliding_window", false)) {
    if (c.has("layer_types")) mixer_kinds(c, {});  // refuses layers with windows
    return std::vector<std::int32_t>(layers, 0);
  }
  if (c.model_type() == "qwen3_moe") demand_flag(c, "use_sliding_window", false);
  if (c.has("layer_types")) return layer_windows(c, 4096, nullptr);
  constexpr std::int32_t usual_full_layers = 28;
  const auto full =
      static_cast<std::size_t>(c.i("max_window_layers", usual_full_layers, count_range));
  std::vector<std::int32_t> windows(layers, c.i("sliding_window", 4096));
  std::fill_n(windows.begin(), std::min(full, layers), 0);
  return windows;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  Plan p = read_plan(c, "rms_norm_eps");
  const bool is_moe = c.model_type() == "qwen3_moe";
  Attention attention = read_attention(c, is_moe ? read_head_dim(c) : c.i("head_dim", 128));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.qk_norm = Norm::rms;
  const std::vector<bool> sparse = is_moe ? sparse_layers(c) : std::vector<bool>();
  const std::vector<std::int32_t> windows = read_windows(c);
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    attention.window = windows[layer];
    const bool has_experts = is_moe && sparse[layer];
    const Part feed_forward = has_experts ? Part(read_qwen_experts(c, false))
                                          : Part(Mlp{.hidden = c.i("intermediate_size")});
    p.layers.push_back({{{.parts = {attention}}, {.parts = {feed_forward}}}});
  }
  return p;
}

constexpr std::string_view model_types[] = {"qwen3", "qwen3_moe"};

GgufConfig gguf_config(const GgufKeys& k) { return gguf_common_config(k, "qwen3"); }

GgufConfig gguf_moe_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "qwen3_moe");
  set_gguf_experts(k, config, "num_experts", "moe_intermediate_size");
  config.set("norm_topk_prob", k.flag("expert_weights_norm", true));
  return config;
}

constexpr auto gguf_moe_names = joined(gguf_names, gguf_expert_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "qwen3", .config = gguf_config, .family = {.plan = plan, .names = gguf_names}},
    {.name = "qwen3moe",
     .config = gguf_moe_config,
     .family = {.plan = [](const Config& c) { return with_separate_experts(plan(c)); },
                .names = gguf_moe_names}}};

}  // namespace

const Family family = {model_types, plan, qwen_names, table_of<architectures>};

}  // namespace hyb::models::qwen3
