// Granite with sliding windows, dense or with experts: Granite's layers, most of them with a
// window, a sink per head, and in every layer a rope of its own or none.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::granite_swa {
namespace {

/// The rope of every layer: layer_rope_theta, where 0 means no positions, comes before rope_theta.
std::vector<std::optional<RopeParameters>> read_layer_ropes(const Config& c,
                                                            std::int32_t head_dim) {
  const RopeParameters rope = read_rope(c, head_dim, 1.0);
  const auto layers = static_cast<std::size_t>(layer_count(c));
  std::vector<std::optional<RopeParameters>> ropes(layers, rope);
  constexpr const char* key = "layer_rope_theta";
  if (!c.has(key)) return ropes;
  if (!rope.scaling.empty()) c.fail(key, "beside a scaled rope is not supported");
  const std::vector<double> thetas = c.numbers(key);
  if (thetas.size() != layers) {
    c.fail(key, fmt::format("has {} entries, num_hidden_layers is {}", thetas.size(), layers));
  }
  for (std::size_t i = 0; i < layers; ++i) {
    if (thetas[i] < 0 || std::isinf(thetas[i])) {
      c.fail(key, fmt::format("entry {}: must be finite and at least 0, is {}", i, thetas[i]));
    }
    ropes[i].reset();
    if (thetas[i] != 0) ropes[i] = RopeParameters::plain(rope.rotary_dim(), thetas[i]);
  }
  return ropes;
}

Part read_granite_experts(const Config& c, float output_scale) {
  const Moe moe = {.experts = c.i("num_local_experts", 8, {1, 8192}),
                   .active = c.i("num_experts_per_tok", 2),
                   .hidden = c.i("intermediate_size"),
                   .score = RouterScore::softmax_of_selected,
                   .shared_hidden = c.i("shared_intermediate_size", 0, count_range),
                   .output_scale = output_scale};
  check(c, moe);
  return moe;
}

Plan plan(const Config& c) {
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  read_granite_factors(c, p, attention);
  attention.sinks = true;
  p.layers = llama_layers(c, attention);
  const auto windows = layer_windows(c, 128, [](std::int32_t layer) { return layer % 4 == 0; });
  const auto ropes = read_layer_ropes(c, attention.head_dim);
  const bool has_experts = c.model_type() == "granitemoe_swa";
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    attention.window = windows[i];
    attention.rope = ropes[i];
    p.layers[i].blocks[0].parts = {attention};
    if (has_experts)
      p.layers[i].blocks[1].parts = {read_granite_experts(c, attention.output_scale)};
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"attention.sinks", "model.layers.{}.self_attn.sinks"},
    {"moe.router", "model.layers.{}.block_sparse_moe.router.weight"},
    {"moe.router", "model.layers.{}.block_sparse_moe.router.layer.weight"},
    {"moe.gate_up", "model.layers.{}.block_sparse_moe.experts.gate_up_proj"},
    {"moe.gate_up", "model.layers.{}.block_sparse_moe.input_linear.weight"},
    {"moe.down", "model.layers.{}.block_sparse_moe.experts.down_proj"},
    {"moe.down", "model.layers.{}.block_sparse_moe.output_linear.weight"},
    {"moe.shared_gate_up", "model.layers.{}.shared_mlp.input_linear.weight"},
    {"moe.shared_down", "model.layers.{}.shared_mlp.output_linear.weight"},
};
constexpr auto names = joined(llama_names, own_names);
constexpr std::string_view model_types[] = {"granite_swa", "granitemoe_swa"};

GgufConfig gguf_config(const GgufKeys& k) {
  const bool has_experts = k.integer("expert_count", 0) > 0;
  GgufConfig config = gguf_common_config(k, has_experts ? "granitemoe_swa" : "granite_swa");
  set_gguf_granite_factors(k, config);
  constexpr const char* windows = "attention.sliding_window_pattern";
  if (!k.has(windows)) k.missing(windows);
  set_gguf_windows(k, config, 4, k.integer("attention.sliding_window"));
  if (has_experts) {
    set_gguf_experts(k, config, "num_local_experts", "intermediate_size");
    config.set("shared_intermediate_size", k.integer("expert_shared_feed_forward_length", 0));
  }
  Json thetas = Json::array();
  for (const std::int64_t has_rope : k.per_layer("attention.rope_pattern")) {
    thetas.push_back(has_rope != 0 ? k.real("rope.freq_base", 10000.0) : 0.0);
  }
  if (!thetas.empty()) config.set("layer_rope_theta", std::move(thetas));
  return config;
}

/// Gate and up of the shared expert are one tensor.
constexpr TensorName gguf_own_names[] = {
    {"attention.sinks", "blk.{}.attn_sinks.weight"},
    {"moe.router", "blk.{}.ffn_gate_inp.weight"},
    {"moe.gate_stack", "blk.{}.ffn_gate_exps.weight"},
    {"moe.up_stack", "blk.{}.ffn_up_exps.weight"},
    {"moe.gate_up", "blk.{}.ffn_gate_up_exps.weight"},
    {"moe.down", "blk.{}.ffn_down_exps.weight"},
    {"moe.shared_gate_up", "blk.{}.ffn_up_shexp.weight"},
    {"moe.shared_down", "blk.{}.ffn_down_shexp.weight"},
};
constexpr auto gguf_all_names = joined(gguf_names, gguf_own_names);

constexpr GgufArchitecture architectures[] = {
    {.name = "granite_swa",
     .config = gguf_config,
     .family = {
         .plan = [](const Config& c) { return with_separate_experts(with_neighbours(plan(c))); },
         .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::granite_swa
