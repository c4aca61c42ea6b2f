// Qwen 2 and 2.5: Llama's layers with biases of q, k and v. Published models see everything: none
// turns its windows on.
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::qwen2 {
namespace {

Plan plan(const Config& c) {
  demand_flag(c, "use_sliding_window", false);
  demand_flag(c, "use_mrope", false);
  if (c.has("layer_types")) mixer_kinds(c, {});  // refuses layers with windows
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.biases = true;
  p.layers = llama_layers(c, attention);
  return p;
}

constexpr auto names = joined(llama_names, bias_names);
constexpr std::string_view model_types[] = {"qwen2"};

GgufConfig gguf_config(const GgufKeys& k) {
  refuse_gguf_experts(k);
  return gguf_common_config(k, "qwen2");
}

constexpr auto gguf_own_names = joined(gguf_names, gguf_bias_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "qwen2", .config = gguf_config, .family = {.plan = plan, .names = gguf_own_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::qwen2
