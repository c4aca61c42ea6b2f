// Mellum 2: Qwen3-MoE with windows, and a rope for each of the two kinds of layers.
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::mellum {
namespace {

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, c.i("head_dim", 128));
  attention.qk_norm = Norm::rms;
  const auto windows = layer_windows(c, 1024, [](std::int32_t) { return true; });
  const std::vector<bool> sparse = sparse_mlp_types(c);
  const Part experts = read_qwen_experts(c, true);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    attention.window = windows[i];
    attention.rope = windows[i] == 0
                         ? read_rope(c, attention.head_dim, 1.0, 500000.0, "full_attention")
                         : read_rope(c, attention.head_dim, 1.0, 10000.0, "sliding_attention");
    const Part feed_forward = sparse[i] ? experts : Part(Mlp{.hidden = c.i("intermediate_size")});
    p.layers.push_back({{{.parts = {attention}}, {.parts = {feed_forward}}}});
  }
  return p;
}

constexpr std::string_view model_types[] = {"mellum"};
constexpr std::string_view unused[] = {"mtp."};

GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "mellum");
  set_gguf_experts(k, config, "num_experts", "moe_intermediate_size");
  set_gguf_windows(k, config, 4);
  config.set_window_rope(k.real("rope.freq_base_swa", k.real("rope.freq_base", 10000.0)));
  return config;
}

constexpr auto gguf_own_names = joined(gguf_names, gguf_expert_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "mellum",
     .config = gguf_config,
     .family = {.plan = [](const Config& c) { return with_separate_experts(plan(c)); },
                .names = gguf_own_names}}};

}  // namespace

const Family family = {model_types,  plan,  qwen_names, table_of<architectures>,
                       usual_trunks, unused};

}  // namespace hyb::models::mellum
