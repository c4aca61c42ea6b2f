// Readers of what Kimi Linear and Ling's hybrid models took over from DeepSeek: attention by
// latents, experts in groups, and which layers have experts.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "models/families/common.h"

namespace hyb::models {

Mla read_mla(const Config& c) {
  const std::int32_t heads = c.i("num_attention_heads");
  if (c.i("num_key_value_heads", heads) != heads) {
    c.fail("num_key_value_heads", fmt::format("is not {}, the number of heads", heads));
  }
  const std::int32_t plain = c.i("qk_nope_head_dim", 128), turned = c.i("qk_rope_head_dim", 64);
  const kernels::LatentShape shape = {.heads = heads,
                                      .turned_width = turned,
                                      .latent_width = c.i("kv_lora_rank", 512),
                                      .scale = static_cast<float>(1.0 / std::sqrt(plain + turned))};
  const Mla mla = {shape, plain, c.i("v_head_dim", 128),
                   c.has("q_lora_rank") ? c.i("q_lora_rank") : 0};
  check(c, mla);
  return mla;
}

Moe read_grouped_experts(const Config& c, const GroupedExperts& usual) {
  const std::int32_t hidden = c.i("moe_intermediate_size");
  const Moe moe = {
      .experts = c.i(expert_count_keys, IntRange{1, 8192}),
      .active = c.i({"num_experts_per_token", "num_experts_per_tok"}, 8),
      .hidden = hidden,
      .score = RouterScore::sigmoid,
      .renormalize = c.b({"moe_renormalize", "norm_topk_prob"}, true),
      .renormalize_epsilon = 1e-20F,
      .correction_bias = true,
      .router_f32 = true,
      .scale = static_cast<float>(c.f("routed_scaling_factor", usual.scale)),
      .groups = c.i({"num_expert_group", "n_group"}, usual.groups),
      .active_groups = c.i("topk_group", usual.active_groups),
      .shared_hidden = c.i("moe_shared_expert_intermediate_size", hidden) *
                       c.i({"num_shared_experts", "n_shared_experts"}, 1, {1, 64}),
  };
  check(c, moe);
  return moe;
}

std::vector<bool> sparse_after_first(const Config& c, std::int32_t usual_dense) {
  if (c.has("mlp_layer_types")) return sparse_mlp_types(c);
  if (c.i("moe_layer_freq", 1) != 1) c.fail("moe_layer_freq", "is not supported, only 1");
  const std::int32_t dense = c.i("first_k_dense_replace", usual_dense, count_range);
  std::vector<bool> sparse;
  for (std::int32_t layer = 0; layer < layer_count(c); ++layer) sparse.push_back(layer >= dense);
  return sparse;
}

}  // namespace hyb::models
