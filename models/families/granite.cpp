// Granite 3 and the dense 4.1 and 4.2: Llama's layers with a constant factor wherever one is
// possible.
#include "models/families/common.h"

namespace hyb::models {
namespace {

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "attention_bias", false);
  demand_flag(c, "mlp_bias", false);
  Plan p = read_plan(c, "rms_norm_eps");
  p.embedding_scale = static_cast<float>(read_factor(c, "embedding_multiplier"));
  p.logits_scale = static_cast<float>(1.0 / read_factor(c, "logits_scaling"));
  const auto residual_scale = static_cast<float>(read_factor(c, "residual_multiplier"));
  Attention attention = read_attention(c, read_head_dim(c));
  attention.scale = static_cast<float>(read_factor(c, "attention_multiplier"));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.output_scale = residual_scale;
  const Mlp mlp = {.hidden = c.i("intermediate_size"), .output_scale = residual_scale};
  for (std::int32_t layer = 0; layer < layer_count(c); ++layer) {
    p.layers.push_back({{{.parts = {attention}}, {.parts = {mlp}}}});
  }
  return p;
}

constexpr auto names = joined(model_names, attention_names, llama_names);
constexpr std::string_view model_types[] = {"granite"};

}  // namespace

const Family granite = {.model_types = model_types, .plan = plan, .names = names};

}  // namespace hyb::models
