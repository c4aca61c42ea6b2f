// Mamba-2 alone: layers of one mixer each, neither attention nor feed-forwards.
#include <fmt/format.h>

#include <algorithm>

#include "models/families/gguf.h"

namespace hyb::models::mamba2 {
namespace {

Ssd read_ssd(const Config& c, std::int32_t width) {
  const std::int32_t groups = c.i("n_groups", 8);
  Ssd ssd = {.heads = c.i("num_heads", 128),
             .head_dim = c.i("head_dim", 64),
             .state_dim = c.i("state_size", 128),
             .shape = {.groups = groups},
             .conv_width = c.i("conv_kernel", 4, {2, 4}),
             .conv_bias = c.b("use_conv_bias", true),
             .norm_groups = groups};
  read_time_step_limit(c, "time_step_limit", ssd);
  check(c, ssd);
  const std::int64_t inner = std::int64_t{width} * c.i("expand", 2, {1, 64});
  if (inner != ssd.inner()) {
    c.fail("expand",
           fmt::format("x hidden_size is {}, but num_heads x head_dim is {}", inner, ssd.inner()));
  }
  return ssd;
}

/// `norm_before_gate` is true in Codestral's files, though the norm comes after the gate there:
/// transformers reads it as little as `rms_norm`. The residual stream has the activations' type,
/// as vLLM has it, whatever `residual_in_fp32` says.
Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_flag(c, "use_bias", false);
  demand_flag(c, "rms_norm", true);
  Plan p = read_plan(c, "layer_norm_epsilon");
  const Ssd ssd = read_ssd(c, p.width);
  for (std::int32_t layer = 0; layer < layer_count(c); ++layer) {
    p.layers.push_back({{{.parts = {ssd}}}});
  }
  return p;
}

constexpr TensorName own_names[] = {{"embed", "*.embedding.weight"}};
constexpr auto names = joined(mixer_names, ssd_mixer_names, own_names);
constexpr std::string_view model_types[] = {"mamba2"};
constexpr std::string_view trunks[] = {"backbone"};

/// The converter demands `expand` times hidden_size channels, too.
GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_mixer_config(k, "mamba2");
  const GgufSsmHeads heads = gguf_ssm_heads(k);
  config.set("num_heads", heads.count);
  config.set("head_dim", heads.width);
  config.set("n_groups", k.integer("ssm.group_count"));
  const std::int64_t width = std::max<std::int64_t>(k.integer("embedding_length"), 1);
  config.set("expand", heads.count * heads.width / width);
  return config;
}

constexpr auto gguf_all_names = joined(gguf_names, gguf_mamba_names);
constexpr GgufArchitecture architectures[] = {
    {.name = "mamba2", .config = gguf_config, .family = {.plan = plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>, trunks};

}  // namespace hyb::models::mamba2
