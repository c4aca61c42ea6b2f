// Bamba: Mamba-2 layers and a few attention layers with partial rope, a feed-forward in every
// layer.
#include <fmt/format.h>

#include <vector>

#include "models/families/common.h"

namespace hyb::models::bamba {
namespace {

std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has({"layer_types", "layers_block_type"})) return mixer_kinds(c);
  return mixer_kinds_at(c, "attn_layer_indices");
}

RopeParameters read_half_rope(const Config& c, std::int32_t head_dim) {
  // Half of a head is rotated, though published configs don't say so.
  const RopeParameters rope = read_rope(c, head_dim, 0.5);
  if (c.f("partial_rotary_factor", 0.5) != 0.5) {
    c.fail("partial_rotary_factor", "is fixed at 0.5 in this family");
  }
  if (c.i("attn_rotary_emb", rope.rotary_dim()) != rope.rotary_dim()) {
    c.fail("attn_rotary_emb", fmt::format("is not {}, half of a head", rope.rotary_dim()));
  }
  return rope;
}

Plan plan(const Config& c) {
  demand(c, "hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias"}) {
    demand_flag(c, key, false);
  }
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_attention(c, read_head_dim(c));
  attention.rope = read_half_rope(c, attention.head_dim);
  const Ssd ssd = read_mamba(c, expanded_channels(c, p.width));
  const Mlp mlp = {.hidden = c.i("intermediate_size")};
  for (const MixerKind kind : read_mixers(c)) {
    const Part mixer = kind == MixerKind::attention ? Part(attention) : Part(ssd);
    p.layers.push_back({{{.parts = {mixer}}, {.parts = {mlp}}}});
  }
  return p;
}

constexpr auto names = joined(model_names, attention_names, mamba_names, pre_ff_names);
constexpr std::string_view model_types[] = {"bamba"};

}  // namespace

const Family family = {model_types, plan, names};

}  // namespace hyb::models::bamba
