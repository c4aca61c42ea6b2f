// Ministral 3 (also the text part of mistral3): Llama's layers, and queries that grow with the
// position, so that attention stays sharp beyond the positions of the training.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <optional>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::ministral3 {
namespace {

/// Keys of the rope's object.
kernels::QueryScale read_query_scale(const Config& c) {
  const std::optional<Config> rope = c.object({"rope_parameters", "rope_scaling"});
  if (!rope) c.fail("rope_parameters", "is missing; it says how Ministral 3 stretches positions");
  const double beta = rope->f("llama_4_scaling_beta");
  if (beta < 0 || beta > 100) {
    rope->fail("llama_4_scaling_beta", fmt::format("must be from 0 to 100, is {}", beta));
  }
  return {.beta = static_cast<float>(beta), .period = rope->i("original_max_position_embeddings")};
}

Plan plan(const Config& c) {
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  attention.query_scale = read_query_scale(c);
  if (c.has("sliding_window")) attention.window = c.i("sliding_window");
  demand_absent(c, "layer_types");
  demand_absent(c, "original_max_position_embeddings");  // transformers prefers it to the rope's
  p.layers = llama_layers(c, attention);
  return p;
}

constexpr TensorName own_names[] = {
    {"head", "language_model.lm_head.weight"},
};
constexpr auto names = joined(llama_names, own_names);
constexpr std::string_view model_types[] = {"ministral3"};
constexpr std::string_view trunks[] = {"model", "model.language_model", "language_model.model"};
constexpr std::string_view unused[] = {"vision_tower.", "multi_modal_projector.",
                                       "model.vision_tower.", "model.multi_modal_projector."};

constexpr const char* scale_key = "attention.temperature_scale";

/// Mistral Small 3 is written so, too: its layers are Llama's.
GgufConfig gguf_config(const GgufKeys& k) {
  refuse_gguf_experts(k);
  if (!k.has(scale_key)) return gguf_common_config(k, "llama");
  GgufConfig config = gguf_common_config(k, "ministral3");
  if (k.text("rope.scaling.type", "none") != "yarn") {
    k.fail("rope.scaling.type", fmt::format("beside {} it must be yarn", k.name(scale_key)));
  }
  config.set_rope("llama_4_scaling_beta", k.real(scale_key));
  return config;
}

constexpr GgufArchitecture architectures[] = {
    {.name = "mistral3",
     .config = gguf_config,
     .family = {.plan =
                    [](const Config& c) {
                      return with_neighbours(c.model_type() == "llama" ? llama::family.plan(c)
                                                                       : plan(c));
                    },
                .names = gguf_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>, trunks, unused};

}  // namespace hyb::models::ministral3
