// Mamba-2 alone: layers of one mixer each, neither attention nor feed-forwards.
#include <fmt/format.h>

#include "models/families/common.h"

namespace hyb::models {
namespace {

Ssd read_ssd(const Config& c, std::int32_t width) {
  const std::int32_t groups = c.i("n_groups", 8);
  Ssd ssd = {.heads = c.i("num_heads", 128),
             .head_dim = c.i("head_dim", 64),
             .state_dim = c.i("state_size", 128),
             .groups = groups,
             .conv_width = c.i("conv_kernel", 4, {2, 4}),
             .conv_bias = c.b("use_conv_bias", true),
             .norm_groups = groups};
  read_time_step_limit(c, "time_step_limit", ssd);
  check(c, ssd);
  const std::int64_t inner = std::int64_t{width} * c.i("expand", 2, {1, 64});
  if (inner != ssd.inner()) {
    c.fail("expand", fmt::format("x hidden_size is {}, but num_heads x head_dim is {}", inner,
                                 ssd.inner()));
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

constexpr auto names = joined(mixer_names, ssd_mixer_names);
constexpr std::string_view model_types[] = {"mamba2"};
constexpr std::string_view trunks[] = {"backbone"};

}  // namespace

const Family mamba2 = {
    .model_types = model_types, .plan = plan, .names = names, .trunks = trunks};

}  // namespace hyb::models
