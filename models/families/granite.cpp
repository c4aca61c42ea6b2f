// Granite 3 and the dense 4.1 and 4.2: Llama's layers with a constant factor wherever one is
// possible.
#include "models/families/common.h"

namespace hyb::models {
namespace {

Plan plan(const Config& c) {
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  read_granite_factors(c, p, attention);
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  p.layers = llama_layers(c, attention);
  return p;
}

constexpr auto names = joined(model_names, attention_names, llama_names);
constexpr std::string_view model_types[] = {"granite"};

}  // namespace

const Family granite = {.model_types = model_types, .plan = plan, .names = names};

}  // namespace hyb::models
