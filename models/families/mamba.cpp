// Mamba (Mamba-1) and Falcon Mamba: layers of one mixer each, in Falcon Mamba with norms of dt, B
// and C.
#include <fmt/format.h>

#include "models/families/gguf.h"

namespace hyb::models::mamba {
namespace {

/// intermediate_size counts where a file has it, as in Falcon Mamba's, whose `expand` is another.
std::int32_t read_channels(const Config& c, std::int32_t width) {
  if (c.has("intermediate_size")) return c.i("intermediate_size");
  const std::int64_t expanded = std::int64_t{width} * c.i("expand", 2, {1, 64});
  if (expanded > dimension_range.high) {
    c.fail("expand", fmt::format("x hidden_size is {} channels, at most {} make sense", expanded,
                                 dimension_range.high));
  }
  return static_cast<std::int32_t>(expanded);
}

/// The residual stream has the activations' type, as vLLM has it, whatever `residual_in_fp32` says.
Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "use_bias", false);
  demand_flag(c, "rms_norm", true);
  Plan p = read_plan(c, "layer_norm_epsilon");
  p.tied_head = c.b("tie_word_embeddings", true);
  S6 s6 = {.channels = read_channels(c, p.width),
           .state_dim = c.i("state_size", 16),
           .dt_rank = read_step_rank(c, "time_step_rank"),
           .conv_width = c.i("conv_kernel", 4, {2, 4}),
           .conv_bias = c.b("use_conv_bias", true)};
  if (p.family == "falcon_mamba") {
    s6.norms = S6Norms::plain;
    s6.dt_norm_eps = c.has("mixer_rms_eps") ? read_norm_eps(c, "mixer_rms_eps") : 1e-6F;
  }
  check(c, s6);
  p.layers.assign(static_cast<std::size_t>(layer_count(c)), {{{.parts = {s6}}}});
  return p;
}

constexpr TensorName own_names[] = {
    {"embed", "*.embedding.weight"},
    {"s6.in_proj", "*.layers.{}.mixer.in_proj.weight"},
    {"s6.conv_weight", "*.layers.{}.mixer.conv1d.weight"},
    {"s6.conv_bias", "*.layers.{}.mixer.conv1d.bias"},
    {"s6.x_proj", "*.layers.{}.mixer.x_proj.weight"},
    {"s6.dt_proj", "*.layers.{}.mixer.dt_proj.weight"},
    {"s6.dt_bias", "*.layers.{}.mixer.dt_proj.bias"},
    {"s6.a_log", "*.layers.{}.mixer.A_log"},
    {"s6.d", "*.layers.{}.mixer.D"},
    {"s6.out_proj", "*.layers.{}.mixer.out_proj.weight"},
};
constexpr auto names = joined(mixer_names, own_names);
constexpr std::string_view model_types[] = {"mamba", "falcon_mamba"};
constexpr std::string_view trunks[] = {"backbone"};

GgufConfig gguf_config(const GgufKeys& k) {
  const bool has_norms = k.flag("ssm.dt_b_c_rms", false);
  GgufConfig config = gguf_mixer_config(k, has_norms ? "falcon_mamba" : "mamba");
  config.set("intermediate_size", k.integer("ssm.inner_size"));
  config.set("time_step_rank", k.integer("ssm.time_step_rank"));
  return config;
}

constexpr auto gguf_all_names = joined(gguf_names, gguf_s6_names);
constexpr GgufArchitecture architectures[] = {
    {.name = "mamba", .config = gguf_config, .family = {.plan = plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>, trunks};

}  // namespace hyb::models::mamba
