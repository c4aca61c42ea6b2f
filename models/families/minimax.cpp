// MiniMax-Text-01 and M1: lightning attention, a few layers of attention, experts in every layer;
// what a block adds to is its own normed input.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "models/families/gguf.h"

namespace hyb::models::minimax {
namespace {

/// Distinguishes the spelling that was published first from transformers' own.
bool is_original(const Config& c) { return c.model_type() != "minimax"; }

std::vector<MixerKind> read_mixers(const Config& c) {
  if (c.has("layer_types")) return mixer_kinds(c, {"linear_attention"});
  constexpr const char* key = "attn_type_list";
  const auto layers = static_cast<std::size_t>(layer_count(c));
  std::vector<MixerKind> kinds;
  if (is_original(c)) {
    for (const std::int32_t kind : c.integers(key, {0, 1})) {
      kinds.push_back(kind == 1 ? MixerKind::attention : MixerKind::recurrent);
    }
    if (kinds.size() != layers) {
      c.fail(key, fmt::format("has {} entries, num_hidden_layers is {}", kinds.size(), layers));
    }
    return kinds;
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    kinds.push_back(layer % 2 == 0 ? MixerKind::attention : MixerKind::recurrent);
  }
  return kinds;
}

/// Factors on what a block carries on (alpha), and on what it adds (beta).
struct Factors {
  float carried, added;
};

Factors read_factors(const Config& c, const char* part, const char* original) {
  const auto read = [&](const char* name) {
    return static_cast<float>(read_factor(c, is_original(c)
                                                 ? fmt::format("layernorm_{}_{}", original, name)
                                                 : fmt::format("{}_{}_factor", part, name)));
  };
  return {read("alpha"), read("beta")};
}

/// Both keys may be there: transformers' class does not read rotary_dim, the weights were trained
/// with it.
Attention read_softmax(const Config& c) {
  Attention attention = read_attention(c, read_head_dim(c));
  const std::int32_t dims = c.i("rotary_dim", attention.head_dim, IntRange{2, attention.head_dim});
  attention.rope = read_rope(c, dims, 1.0, 1e6);
  if (c.has("rotary_dim") && attention.rope->rotary_dim() != dims) {
    c.fail("rotary_dim", "is there beside a partial_rotary_factor; keep one of them");
  }
  return attention;
}

Lightning read_lightning(const Config& c, const Attention& attention, std::int32_t layer) {
  const auto last = static_cast<double>(layer_count(c)) - 1 + 1e-5;
  const Lightning lightning = {.heads = attention.heads,
                               .head_dim = attention.head_dim,
                               .pace = static_cast<float>(1 - layer / last + 1e-5)};
  check(c, lightning, !is_original(c));
  return lightning;
}

Moe read_moe(const Config& c) {
  const Moe moe = {
      .experts = c.i(expert_count_keys, IntRange{1, 8192}),
      .active = c.i("num_experts_per_tok"),
      .hidden = c.i("intermediate_size"),
      .score = RouterScore::softmax,
      .renormalize = true,
      .router_f32 = is_original(c),
  };
  check(c, moe);
  return moe;
}

void refuse_others(const Config& c) {
  demand(c, "hidden_act", "silu");
  demand_absent(c, "sliding_window");
  demand_flag(c, "attention_bias", false);
  if (!is_original(c)) return;
  if (!c.b("postnorm", false)) c.fail("postnorm", "false is not supported, only true");
  constexpr const char* shared = "shared_intermediate_size";
  if (c.i(shared, 0, count_range) > 0) c.fail(shared, "is not supported, only 0");
}

Plan plan(const Config& c) {
  refuse_others(c);
  Plan p = read_plan(c, "rms_norm_eps");
  Attention attention = read_softmax(c);
  check(c, attention);
  Moe moe = read_moe(c);
  const Factors full = read_factors(c, "full_attn", "full_attention"),
                linear = read_factors(c, "linear_attn", "linear_attention"),
                experts = read_factors(c, "mlp", "mlp");
  attention.output_scale = full.added;
  moe.output_scale = experts.added;
  for (const MixerKind kind : read_mixers(c)) {
    const bool is_full = kind == MixerKind::attention;
    Lightning lightning = read_lightning(c, attention, static_cast<std::int32_t>(p.layers.size()));
    lightning.output_scale = linear.added;
    const Part mixer = is_full ? Part(attention) : Part(lightning);
    p.layers.push_back(
        {{{.parts = {mixer}, .carried_norm = is_full ? full.carried : linear.carried},
          {.parts = {moe}, .carried_norm = experts.carried}}});
  }
  return p;
}

constexpr TensorName own_names[] = {
    {"final_norm", "*.norm.weight"},
    {"block0.norm", "*.layers.{}.input_layernorm.weight"},
    {"lightning.qkv", "*.layers.{}.self_attn.qkv_proj.weight"},
    {"lightning.gate", "*.layers.{}.self_attn.output_gate.weight"},
    {"lightning.norm", "*.layers.{}.self_attn.norm.weight"},
    {"lightning.out_proj", "*.layers.{}.self_attn.out_proj.weight"},
    {"moe.router", "*.layers.{}.block_sparse_moe.gate.weight"},
    {"moe.expert_gate", "*.layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    {"moe.expert_up", "*.layers.{}.block_sparse_moe.experts.{}.w3.weight"},
    {"moe.expert_down", "*.layers.{}.block_sparse_moe.experts.{}.w2.weight"},
};
constexpr auto names = joined(own_names, model_names, attention_names, second_norm_names,
                              router_names, stacked_expert_names);
constexpr std::string_view model_types[] = {"minimax", "minimax_m1", "minimax_text_01"};

/// llama.cpp's converter takes files of one alpha alone, whose betas are 1.
GgufConfig gguf_config(const GgufKeys& k) {
  GgufConfig config = gguf_common_config(k, "minimax_text_01");
  const std::int64_t interval = k.integer("full_attention_interval", 8);
  if (interval < 1) k.fail("full_attention_interval", "must be above 0");
  const std::vector<std::int64_t> recurrent = k.per_layer("attention.recurrent_layers");
  std::vector<std::int64_t> kinds;
  for (std::int64_t layer = 0; layer < gguf_layers(k); ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const bool is_listed = at < recurrent.size();
    kinds.push_back(is_listed ? recurrent[at] == 0 : (layer + 1) % interval == 0);
  }
  config.set("attn_type_list", kinds);
  for (const char* part : {"full_attention", "linear_attention", "mlp"}) {
    config.set(fmt::format("layernorm_{}_alpha", part), k.real("residual_scale"));
  }
  config.set("postnorm", true);
  set_gguf_experts(k, config, "num_local_experts", "intermediate_size");
  return config;
}

Plan gguf_plan(const Config& c) { return with_separate_experts(plan(c)); }

constexpr TensorName own_gguf_names[] = {
    {"lightning.qkv", "blk.{}.attn_qkv.weight"},
    {"lightning.gate", "blk.{}.attn_gate.weight"},
    {"lightning.norm", "blk.{}.attn_norm_2.weight"},
    {"lightning.out_proj", "blk.{}.attn_output.weight"},
};
constexpr auto gguf_all_names = joined(own_gguf_names, gguf_names, gguf_expert_names);
constexpr GgufArchitecture architectures[] = {
    {.name = "minimax-01",
     .config = gguf_config,
     .family = {.plan = gguf_plan, .names = gguf_all_names}}};

}  // namespace

const Family family = {model_types, plan, names, table_of<architectures>};

}  // namespace hyb::models::minimax
