// Zamba2: Mamba-2 layers; before some of them one of a few transformer blocks, whose weights their
// layers share.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "models/families/common.h"

namespace hyb::models::zamba2 {
namespace {

/// A key that transformers computes of others.
void demand_computed(const Config& c, std::string_view key, std::int32_t value) {
  if (c.i(Keys{key}, value) != value) {
    c.fail(key, fmt::format("is not {}, which follows from other keys", value));
  }
}

/// For every layer, whether it has a block.
std::vector<bool> read_hybrids(const Config& c) {
  const Keys keys = {"layers_block_type", "layer_types"};
  const std::vector<std::string> kinds = c.strings(keys);
  if (std::ssize(kinds) != layer_count(c)) {
    c.fail("layers_block_type",
           fmt::format("has {} entries, num_hidden_layers is {}", kinds.size(), layer_count(c)));
  }
  std::vector<bool> hybrids;
  for (const std::string& kind : kinds) {
    if (kind != "hybrid" && kind != "mamba" && kind != "linear_attention") {
      c.fail("layers_block_type", quote_name(kind) + " is not a known kind of layer");
    }
    hybrids.push_back(kind == "hybrid");
  }
  if (c.has("hybrid_layer_ids") && layers_at(c, "hybrid_layer_ids") != hybrids) {
    c.fail("hybrid_layer_ids", "are not the hybrid layers of layers_block_type");
  }
  return hybrids;
}

/// dt has no lower limit: transformers clamps it by time_step_min in prompts, not in the tokens
/// after them, and what trains and serves these models does not.
Ssd read_ssd(const Config& c, std::int32_t width) {
  demand_flag(c, "use_conv_bias", true);
  demand_absent(c, "time_step_limit");
  const std::int32_t heads = c.i("n_mamba_heads", 8), groups = c.i("mamba_ngroups", 1);
  const MambaChannels inner = expanded_channels(c, width);
  demand_multiple(c, inner.key, inner.count, "n_mamba_heads", heads);
  const Ssd ssd = {.heads = heads,
                   .head_dim = static_cast<std::int32_t>(inner.count / heads),
                   .state_dim = c.i("mamba_d_state", 64),
                   .shape = {.groups = groups},
                   .conv_width = c.i("mamba_d_conv", 4, {2, 4}),
                   .norm_groups = groups,
                   .norm_eps = 1e-5F};  // whatever rms_norm_eps is
  demand_computed(c, "mamba_headdim", ssd.head_dim);
  check(c, ssd);
  return ssd;
}

Attention read_pair_attention(const Config& c, std::int32_t width) {
  const std::int32_t heads = c.i("num_attention_heads");
  demand_multiple(c, "2 x hidden_size", 2 * std::int64_t{width}, "num_attention_heads", heads);
  const std::int32_t head_dim = 2 * width / heads;
  demand_computed(c, "attention_head_dim", head_dim);
  demand_computed(c, "attention_hidden_size", 2 * width);
  Attention attention = read_attention(c, head_dim);
  attention.scale = 1.0F / std::sqrt(static_cast<float>(head_dim) / 2);
  attention.reads_pairs = true;
  if (c.b("use_mem_rope", false)) attention.rope = read_rope(c, head_dim, 1.0);
  if (attention.rope && attention.rope->rotary_dim() != head_dim) {
    c.fail("partial_rotary_factor", "is not supported, only 1");
  }
  return attention;
}

SharedTransformer read_shared(const Config& c, std::int32_t width) {
  // Adapters of the feed-forward are there in any case.
  demand_flag(c, "use_shared_mlp_adapter", true);
  SharedTransformer shared = {.attention = read_pair_attention(c, width),
                              .mlp = {.hidden = c.i("intermediate_size", 4 * width),
                                      .activation = {kernels::ActivationFunction::gelu}},
                              .rank = c.i("adapter_rank", 128),
                              .adapts_qkv = c.b("use_shared_attention_adapter", false)};
  if (shared.adapts_qkv && shared.attention.kv_heads != shared.attention.heads) {
    c.fail("num_key_value_heads", "must be num_attention_heads with use_shared_attention_adapter");
  }
  return shared;
}

/// With use_long_context, transformers states another max_position_embeddings and turns by
/// rope_theta as it is.
Plan plan(const Config& c) {
  demand(c, "hidden_act", "gelu");
  demand_flag(c, "add_bias_linear", false);
  Plan p = read_plan(c, "rms_norm_eps");
  demand_flag(c, "tie_word_embeddings", true);  // else transformers shares no blocks either
  p.tied_head = true;
  p.keeps_embedding = true;
  if (c.b("use_long_context", false)) p.positions_max = 16384;
  const Ssd ssd = read_ssd(c, p.width);
  SharedTransformer shared = read_shared(c, p.width);
  const std::int32_t blocks = c.i("num_mem_blocks", 1);
  std::vector<std::int32_t> first_layers;
  for (const bool is_hybrid : read_hybrids(c)) {
    if (!is_hybrid) {
      p.layers.push_back({{{.parts = {ssd}}}});
      continue;
    }
    shared.layer = static_cast<std::int32_t>(p.layers.size());
    if (std::ssize(first_layers) < blocks) first_layers.push_back(shared.layer);
    shared.first_layer = first_layers[static_cast<std::size_t>(shared.use % blocks)];
    p.layers.push_back({{{.parts = {shared, ssd}, .feeds_norm = true}}});
    ++shared.use;
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"final_norm", "*.final_layernorm.weight"},
    {"block0.norm", "*.layers.{}.input_layernorm.weight"},
    {"block0.norm", "*.layers.{}.mamba_decoder.input_layernorm.weight"},
    {"ssd.in_proj", "*.layers.{}.mamba_decoder.mamba.in_proj.weight"},
    {"ssd.conv_weight", "*.layers.{}.mamba_decoder.mamba.conv1d.weight"},
    {"ssd.conv_bias", "*.layers.{}.mamba_decoder.mamba.conv1d.bias"},
    {"ssd.a_log", "*.layers.{}.mamba_decoder.mamba.A_log"},
    {"ssd.d", "*.layers.{}.mamba_decoder.mamba.D"},
    {"ssd.dt_bias", "*.layers.{}.mamba_decoder.mamba.dt_bias"},
    {"ssd.norm", "*.layers.{}.mamba_decoder.mamba.norm.weight"},
    {"ssd.out_proj", "*.layers.{}.mamba_decoder.mamba.out_proj.weight"},
    {"shared.linear", "*.layers.{}.linear.weight"},
    {"shared.norm", "*.layers.{}.shared_transformer.input_layernorm.weight"},
    {"attention.q", "*.layers.{}.shared_transformer.self_attn.q_proj.weight"},
    {"attention.k", "*.layers.{}.shared_transformer.self_attn.k_proj.weight"},
    {"attention.v", "*.layers.{}.shared_transformer.self_attn.v_proj.weight"},
    {"attention.o", "*.layers.{}.shared_transformer.self_attn.o_proj.weight"},
    {"shared.q_left", "*.layers.{}.shared_transformer.self_attn.linear_q_adapter_list.{}.0.weight"},
    {"shared.q_right",
     "*.layers.{}.shared_transformer.self_attn.linear_q_adapter_list.{}.1.weight"},
    {"shared.k_left", "*.layers.{}.shared_transformer.self_attn.linear_k_adapter_list.{}.0.weight"},
    {"shared.k_right",
     "*.layers.{}.shared_transformer.self_attn.linear_k_adapter_list.{}.1.weight"},
    {"shared.v_left", "*.layers.{}.shared_transformer.self_attn.linear_v_adapter_list.{}.0.weight"},
    {"shared.v_right",
     "*.layers.{}.shared_transformer.self_attn.linear_v_adapter_list.{}.1.weight"},
    {"shared.mlp_norm", "*.layers.{}.shared_transformer.pre_ff_layernorm.weight"},
    {"mlp.gate_up", "*.layers.{}.shared_transformer.feed_forward.gate_up_proj.weight"},
    {"mlp.down", "*.layers.{}.shared_transformer.feed_forward.down_proj.weight"},
    {"shared.mlp_left",
     "*.layers.{}.shared_transformer.feed_forward.gate_up_proj_adapter_list.{}.0.weight"},
    {"shared.mlp_right",
     "*.layers.{}.shared_transformer.feed_forward.gate_up_proj_adapter_list.{}.1.weight"},
};
constexpr auto names = joined(model_names, mamba_names, own_names);
constexpr std::string_view model_types[] = {"zamba2"};

}  // namespace

const Family family = {model_types, plan, names};

}  // namespace hyb::models::zamba2
