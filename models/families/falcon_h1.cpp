// Falcon-H1: Mamba-2 and attention side by side in every layer, a feed-forward after them, and a
// constant factor (muP) on nearly everything.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/families/common.h"
#include "models/families/gguf.h"

namespace hyb::models::falcon_h1 {
namespace {

/// A list of `count` factors; absent, all are 1.
std::vector<float> read_factors(const Config& c, const char* key, std::size_t count) {
  if (!c.has(key)) return std::vector<float>(count, 1.0F);
  std::vector<float> factors;
  for (const double factor : c.numbers(key)) {
    if (factor <= 0 || factor > 1e6) {
      c.fail(key, fmt::format("must be numbers above 0 and at most 1e6, has {}", factor));
    }
    factors.push_back(static_cast<float>(factor));
  }
  if (factors.size() != count) {
    c.fail(key, fmt::format("has {} numbers, not {}", factors.size(), count));
  }
  return factors;
}

/// Factors on the input and on the keys commute with the projections and with rope: on q.k they are
/// one factor, on v another one of the output.
Attention read_scaled_attention(const Config& c) {
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_rope(c, attention.head_dim, 1.0);
  const double in = read_factor(c, "attention_in_multiplier");
  const double scale = attention.scale * in * in * read_factor(c, "key_multiplier");
  attention.scale = static_cast<float>(scale);
  attention.output_scale = static_cast<float>(in * read_factor(c, "attention_out_multiplier"));
  return attention;
}

SsdGate read_gate(const Config& c) {
  if (!c.b("mamba_rms_norm", false)) return SsdGate::gate_only;
  const bool norm_first = c.b("mamba_norm_before_gate", true);
  return norm_first ? SsdGate::norm_then_gate : SsdGate::gate_then_norm;
}

Ssd read_scaled_mamba(const Config& c, std::int32_t width) {
  constexpr const char* channels = "mamba_d_ssm";
  Ssd ssd = read_mamba(c, c.is_null(channels) ? expanded_channels(c, width)
                                              : MambaChannels{c.i(channels, 1024), channels});
  ssd.gate = read_gate(c);
  const auto in = static_cast<float>(read_factor(c, "ssm_in_multiplier"));
  const std::vector<float> scales = read_factors(c, "ssm_multipliers", 5);
  std::ranges::transform(scales, ssd.projection_scales.begin(),
                         [&](float scale) { return in * scale; });
  ssd.output_scale = static_cast<float>(read_factor(c, "ssm_out_multiplier"));
  return ssd;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"}) {
    demand_flag(c, key, false);
  }
  Plan p = read_plan(c, "rms_norm_eps");
  p.embedding_scale = static_cast<float>(read_factor(c, "embedding_multiplier"));
  p.logits_scale = static_cast<float>(read_factor(c, "lm_head_multiplier"));
  const Ssd ssd = read_scaled_mamba(c, p.width);
  const Attention attention = read_scaled_attention(c);
  const std::vector<float> scales = read_factors(c, "mlp_multipliers", 2);
  const Mlp mlp = {
      .hidden = c.i("intermediate_size"), .gate_scale = scales[0], .output_scale = scales[1]};
  const Layer layer = {{{.parts = {ssd, attention}}, {.parts = {mlp}}}};
  p.layers.assign(static_cast<std::size_t>(layer_count(c)), layer);
  return p;
}

constexpr auto names = joined(model_names, attention_names, mamba_names, pre_ff_names);
constexpr std::string_view model_types[] = {"falcon_h1"};

/// Its factors are in the weights.
GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "falcon_h1");
  config.set("mamba_d_ssm", set_gguf_mamba(k, config));
  config.set("mamba_rms_norm", k.any_tensor("ssm_norm.weight") != nullptr);
  config.set("mamba_norm_before_gate", false);
  return config;
}

constexpr TensorName gguf_own_names[] = {{"block1.norm", "blk.{}.ffn_norm"}};
constexpr auto gguf_all_names = joined(gguf_own_names, gguf_names, gguf_mamba_names);

constexpr GgufArchitecture architectures[] = {{.name = "falcon-h1",
                                               .config = gguf_config,
                                               .family = {.plan = plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::falcon_h1
