// Granite 3 and the dense 4.1 and 4.2: Llama's layers with a constant factor wherever one is
// possible.
#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::granite {
namespace {

Plan plan(const Config& c) {
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  read_granite_factors(c, p, attention);
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  p.layers = llama_layers(c, attention);
  return p;
}

constexpr std::string_view model_types[] = {"granite"};

GgufConfig gguf_config(const GgufKeys& k) {
  refuse_gguf_experts(k);
  GgufConfig config = gguf_common_config(k, "granite");
  set_gguf_granite_factors(k, config);
  return config;
}

/// Granite 3's with experts, which are granitemoehybrid without recurrent layers.
GgufConfig gguf_moe_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "granitemoehybrid");
  set_gguf_granite_factors(k, config);
  set_gguf_experts(k, config, "num_local_experts", "intermediate_size");
  config.set("shared_intermediate_size", k.integer("expert_shared_feed_forward_length", 0));
  config.set("position_embedding_type", "rope");
  config.set("layer_types",
             std::vector<std::string>(static_cast<std::size_t>(gguf_layers(k)), "attention"));
  return config;
}

constexpr auto gguf_moe_names = joined(gguf_names, gguf_expert_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "granite",
     .config = gguf_config,
     .family = {.plan = [](const Config& c) { return with_neighbours(plan(c)); },
                .names = gguf_names}},
    {.name = "granitemoe",
     .config = gguf_moe_config,
     .family = {.plan =
                    [](const Config& c) {
                      return with_separate_experts(with_neighbours(granite_hybrid::family.plan(c)));
                    },
                .names = gguf_moe_names}}};

}  // namespace

const Family family = {model_types, plan, llama_names, table_of<architectures>};

}  // namespace hyb::models::granite
