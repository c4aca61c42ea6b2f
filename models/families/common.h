#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "models/config.h"
#include "models/families.h"
#include "models/plan.h"

namespace hyb::models {

/// Readings and rules that several families share. Every broken rule is Error(model) naming the
/// keys and their values.

/// A key of transformers 5: index of a layer -> other values of any keys.
inline constexpr const char* layer_values_key = "per_layer_config";

enum class MixerKind : std::uint8_t { recurrent, attention };

/// Reads what all families spell alike: a plan without layers, factors and rope, its head tied
/// where tie_word_embeddings says so. Refuses what no family reads: quantised weights
/// (refuse_quantized) and layers with values of their own (`per_layer_config`).
Plan read_plan(const Config& config, const Keys& norm_eps);

/// num_hidden_layers, at most 4096.
std::int32_t layer_count(const Config& config);

/// `layer_types` or `layers_block_type`: "attention" and "full_attention", or one of the words for
/// a recurrent layer. The list must be as long as num_hidden_layers.
std::vector<MixerKind> mixer_kinds(const Config& config,
                                   std::initializer_list<std::string_view> recurrent = {
                                       "mamba", "mamba2", "linear_attention"});

/// For every layer of `layer_types` the window of its attention: sliding_window (or `fallback`) of
/// "sliding_attention", 0 of "full_attention". Without layer_types `is_full(layer)` decides.
std::vector<std::int32_t> layer_windows(const Config& config, std::int32_t fallback,
                                        const std::function<bool(std::int32_t layer)>& is_full);

/// For every layer whether its attention has a rope: those that `no_rope_layers` has a 1 for, or
/// without that list all but every fourth one (no_rope_layer_interval).
std::vector<bool> read_rope_layers(const Config& config);

/// For every layer the one whose keys and values it reads, -1 for its own: of the last
/// num_kv_shared_layers layers, the last one before them with the same window.
std::vector<std::int32_t> read_kv_sources(const Config& config,
                                          const std::vector<std::int32_t>& windows,
                                          std::int32_t fallback);

/// The same from a list of the layers with attention under `key`; absent: none has.
std::vector<MixerKind> mixer_kinds_at(const Config& config, std::string_view key);

/// For every layer, whether the list under `key` names it; absent: no layer.
std::vector<bool> layers_at(const Config& config, std::string_view key);

/// For every layer of Qwen3's families, whether it has experts, as num_experts, mlp_only_layers and
/// decoder_sparse_step say.
std::vector<bool> sparse_layers(const Config& config);

/// The same from `mlp_layer_types`, whose words are "dense" and "sparse"; absent: all have experts.
std::vector<bool> sparse_mlp_types(const Config& config);

/// Names of the number of experts: transformers writes the second one for some families that are
/// published with the first, and the other way round.
inline const Keys expert_count_keys = {"num_experts", "num_local_experts"};

/// The experts of Qwen3 and of what follows it: num_experts, num_experts_per_tok,
/// moe_intermediate_size, norm_topk_prob.
Moe read_qwen_experts(const Config& config, bool norm_fallback);

/// A number above 0. The family's own spelling comes first: some files have a second one that no
/// engine reads.
float read_norm_eps(const Config& config, const Keys& keys);

/// The type of recurrent states: bf16 or f32; f32 where config.json says nothing.
DType read_state_dtype(const Config& config, std::string_view key);

/// Refuses quantised weights by the name of their method, but for F8_E4M3 as `fp8` (blocks of 128 x
/// 128, or none), `modelopt` and `compressed-tensors` (of tensors or channels) write it, NVFP4 of
/// both, whole numbers of 4 and 8 bits of `compressed-tensors`, of 4 bits of `gptq`, `awq` and
/// `auto-round`, and `mxfp4` of gpt-oss. How a weight is stored, the files alone decide.
void refuse_quantized(const Config& config);

/// Refuses GPTQ, AWQ and AutoRound, which heads that draft are not published in.
void refuse_words(const Config& config);

/// Refuses a key whose value is not `supported`; absent is fine.
void demand_flag(const Config& config, std::string_view key, bool supported);
void demand(const Config& config, std::string_view key, std::string_view supported);

/// Refuses a key with any value but null.
void demand_absent(const Config& config, std::string_view key);

/// Throws unless `value` (of key) is a multiple of `divisor` (of divisor_key).
void demand_multiple(const Config& config, std::string_view key, std::int64_t value,
                     std::string_view divisor_key, std::int64_t divisor);

/// head_dim, or hidden_size / num_attention_heads where it is absent.
std::int32_t read_head_dim(const Config& config);

/// num_attention_heads and num_key_value_heads (absent: the same number), q.k scaled by
/// 1/sqrt(head_dim); no rope, no norms, no gate: those are the family's.
Attention read_attention(const Config& config, std::int32_t head_dim);

/// Reads rope_theta and partial_rotary_factor, at top level or in rope_parameters, and there
/// rope_type: "default", "linear", "llama3", "yarn" or "proportional" with their factors; other
/// kinds are refused. `layers`: the kind of layers, where each has a rope of its own.
RopeParameters read_rope(const Config& config, std::int32_t head_dim, double partial_fallback,
                         double theta_fallback = 10000.0, std::string_view layers = {});

/// Reads the rope of Gemma 3's full layers, or of its windows: from rope_parameters, which has one
/// object for each kind of layers, or, in older files, from rope_theta and rope_scaling for layers
/// that see everything and from rope_local_base_freq for the others.
RopeParameters read_gemma_rope(const Config& config, std::int32_t head_dim, bool is_full);

/// All dims of a head turn, those after the first `partial` ones at speed 0: pairs are
/// (i, i + head_dim/2) of the whole head, other than with a partial rope of the default kind.
RopeParameters proportional_rope(std::int32_t head_dim, double theta, double partial,
                                 double factor = 1.0);

/// Says whether every kind of layer has a rope of its own.
bool has_layer_ropes(const Config& config);

/// A constant factor, 1 where it is absent; above 0: zero would silence a part of the model, and
/// none is negative.
double read_factor(const Config& config, std::string_view key);

/// A limit of scores or logits; absent: `fallback`, null or 0: none.
float read_cap(const Config& config, std::string_view key, double fallback);

/// Granite's factors: embedding_multiplier and logits_scaling of the plan, attention_multiplier and
/// residual_multiplier of its attention.
void read_granite_factors(const Config& config, Plan& plan, Attention& attention);

/// Llama's layers: attention, and a gated feed-forward of intermediate_size with the same factor on
/// its output. Refuses biases and activations other than silu.
std::vector<Layer> llama_layers(const Config& config, const Attention& attention);

/// Channels of a Mamba-2 mixer, and how config.json says it.
struct MambaChannels {
  std::int64_t count;
  std::string_view key;
};
/// mamba_expand x hidden_size.
MambaChannels expanded_channels(const Config& config, std::int32_t width);

/// Mamba-2 as Granite and Bamba describe it: mamba_n_heads, mamba_d_head (or "auto"), ...
Ssd read_mamba(const Config& config, const MambaChannels& inner);

/// The rank of Mamba-1's time steps under `key`; "auto" or absent: a 16th of hidden_size.
std::int32_t read_step_rank(const Config& config, std::string_view key);

/// Fills dt_min and dt_max from a pair of numbers; absent: no limit.
void read_time_step_limit(const Config& config, const Keys& keys, Ssd& ssd);

/// Attention by latents as DeepSeek spells it, without a rope.
Mla read_mla(const Config& config);

/// Values of experts in groups that config.json may leave out.
struct GroupedExperts {
  double scale;
  std::int32_t groups = 1, active_groups = 1;
};
/// DeepSeek's router: by sigmoids with a bias on the choice, of some groups, beside shared experts.
Moe read_grouped_experts(const Config& config, const GroupedExperts& usual);

/// For every layer whether it has experts: by mlp_layer_types, or all after the first
/// first_k_dense_replace ones.
std::vector<bool> sparse_after_first(const Config& config, std::int32_t usual_dense);

/// The rules that every part obeys: products small enough for 32 bits, heads that divide.
void check(const Config& config, const Attention& attention);
void check(const Config& config, const Ssd& ssd);
void check(const Config& config, const DeltaNet& delta);
void check(const Config& config, const S6& s6);
void check(const Config& config, const Moe& moe);
void check(const Config& config, const Mla& mla);
/// `any_heads`: also of numbers that are no powers of two, whose rates a class of transformers
/// makes by the same rule, and the code that models are published with by another.
void check(const Config& config, const Lightning& lightning, bool any_heads);

template <typename Table>
inline constexpr std::size_t length_of = std::extent_v<Table>;
template <std::size_t N>
inline constexpr std::size_t length_of<std::array<TensorName, N>> = N;

/// Several tables as one, in that order: of two layouts the first is preferred.
template <typename... Tables>
constexpr auto joined(const Tables&... tables) {
  std::array<TensorName, (length_of<Tables> + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(std::begin(tables), std::end(tables), end)), ...);
  return all;
}

/// Names of tensors that several families have, to be joined() with a family's own.

inline constexpr TensorName model_names[] = {
    {"embed", "*.embed_tokens.weight"},
    {"head", "lm_head.weight"},
};

inline constexpr TensorName attention_names[] = {
    {"attention.q", "*.layers.{}.self_attn.q_proj.weight"},
    {"attention.k", "*.layers.{}.self_attn.k_proj.weight"},
    {"attention.v", "*.layers.{}.self_attn.v_proj.weight"},
    {"attention.o", "*.layers.{}.self_attn.o_proj.weight"},
};

inline constexpr TensorName bias_names[] = {
    {"attention.q_bias", "*.layers.{}.self_attn.q_proj.bias"},
    {"attention.k_bias", "*.layers.{}.self_attn.k_proj.bias"},
    {"attention.v_bias", "*.layers.{}.self_attn.v_proj.bias"},
};

inline constexpr TensorName qk_norm_names[] = {
    {"attention.q_norm", "*.layers.{}.self_attn.q_norm.weight"},
    {"attention.k_norm", "*.layers.{}.self_attn.k_norm.weight"},
};

/// All that spell a feed-forward as Llama does have these names, whatever norm is before it.
inline constexpr TensorName layer_names[] = {
    {"final_norm", "*.norm.weight"},
    {"block0.norm", "*.layers.{}.input_layernorm.weight"},
    {"mlp.gate", "*.layers.{}.mlp.gate_proj.weight"},
    {"mlp.up", "*.layers.{}.mlp.up_proj.weight"},
    {"mlp.down", "*.layers.{}.mlp.down_proj.weight"},
};
inline constexpr auto trunk_names = joined(model_names, attention_names, layer_names);

inline constexpr TensorName second_norm_names[] = {
    {"block1.norm", "*.layers.{}.post_attention_layernorm.weight"},
};
/// Llama's own names, which many families share.
inline constexpr auto llama_names = joined(trunk_names, second_norm_names);

/// Experts as Qwen3 spells them, in either layout.
inline constexpr TensorName single_expert_names[] = {
    {"moe.expert_gate", "*.layers.{}.mlp.experts.{}.gate_proj.weight"},
    {"moe.expert_up", "*.layers.{}.mlp.experts.{}.up_proj.weight"},
    {"moe.expert_down", "*.layers.{}.mlp.experts.{}.down_proj.weight"},
};
inline constexpr TensorName stacked_expert_names[] = {
    {"moe.gate_up", "*.layers.{}.mlp.experts.gate_up_proj"},
    {"moe.down", "*.layers.{}.mlp.experts.down_proj"},
};
inline constexpr TensorName router_names[] = {{"moe.router", "*.layers.{}.mlp.gate.weight"}};
/// All of it.
inline constexpr auto qwen_names =
    joined(llama_names, qk_norm_names, router_names, single_expert_names, stacked_expert_names);

/// Norms and a feed-forward as Bamba and Falcon-H1 spell them.
inline constexpr TensorName pre_ff_names[] = {
    {"final_norm", "*.final_layernorm.weight"},
    {"block0.norm", "*.layers.{}.input_layernorm.weight"},
    {"block1.norm", "*.layers.{}.pre_ff_layernorm.weight"},
    {"mlp.gate", "*.layers.{}.feed_forward.gate_proj.weight"},
    {"mlp.up", "*.layers.{}.feed_forward.up_proj.weight"},
    {"mlp.down", "*.layers.{}.feed_forward.down_proj.weight"},
};

/// Beside trunk_names: the other norms of attention and a feed-forward, each between two, as Gemma
/// spells them.
inline constexpr TensorName gemma_norm_names[] = {
    {"block0.post_norm", "*.layers.{}.post_attention_layernorm.weight"},
    {"block1.norm", "*.layers.{}.pre_feedforward_layernorm.weight"},
    {"block1.post_norm", "*.layers.{}.post_feedforward_layernorm.weight"},
};

/// A layer's own embedding of the tokens (LayerInputs), as Gemma spells it.
inline constexpr TensorName gemma_input_names[] = {
    {"block2.post_norm", "*.layers.{}.post_per_layer_input_norm.weight"},
    {"layer_input.gate", "*.layers.{}.per_layer_input_gate.weight"},
    {"layer_input.projection", "*.layers.{}.per_layer_projection.weight"},
    {"layer_inputs.embed", "*.embed_tokens_per_layer.weight"},
    {"layer_inputs.projection", "*.per_layer_model_projection.weight"},
    {"layer_inputs.norm", "*.per_layer_projection_norm.weight"},
};

/// LFM2 and LFM3 spell these alike.
inline constexpr TensorName lfm_names[] = {
    {"final_norm", "model.embedding_norm.weight"},
    {"block0.norm", "model.layers.{}.operator_norm.weight"},
    {"block1.norm", "model.layers.{}.ffn_norm.weight"},
    {"conv.in_proj", "model.layers.{}.conv.in_proj.weight"},
    {"conv.weight", "model.layers.{}.conv.conv.weight"},
    {"conv.out_proj", "model.layers.{}.conv.out_proj.weight"},
    {"mlp.gate", "model.layers.{}.feed_forward.w1.weight"},
    {"mlp.up", "model.layers.{}.feed_forward.w3.weight"},
    {"mlp.down", "model.layers.{}.feed_forward.w2.weight"},
};

/// Mamba-2 as read_mamba reads it.
inline constexpr TensorName mamba_names[] = {
    {"ssd.in_proj", "model.layers.{}.mamba.in_proj.weight"},
    {"ssd.conv_weight", "model.layers.{}.mamba.conv1d.weight"},
    {"ssd.conv_bias", "model.layers.{}.mamba.conv1d.bias"},
    {"ssd.a_log", "model.layers.{}.mamba.A_log"},
    {"ssd.d", "model.layers.{}.mamba.D"},
    {"ssd.dt_bias", "model.layers.{}.mamba.dt_bias"},
    {"ssd.norm", "model.layers.{}.mamba.norm.weight"},
    {"ssd.out_proj", "model.layers.{}.mamba.out_proj.weight"},
};

/// Layers of one block as Mamba, Mamba-2 and Nemotron-H spell them.
inline constexpr TensorName mixer_names[] = {
    {"embed", "*.embeddings.weight"},
    {"final_norm", "*.norm_f.weight"},
    {"head", "lm_head.weight"},
    {"block0.norm", "*.layers.{}.norm.weight"},
};
/// Mamba-2 in them.
inline constexpr TensorName ssd_mixer_names[] = {
    {"ssd.in_proj", "*.layers.{}.mixer.in_proj.weight"},
    {"ssd.conv_weight", "*.layers.{}.mixer.conv1d.weight"},
    {"ssd.conv_bias", "*.layers.{}.mixer.conv1d.bias"},
    {"ssd.a_log", "*.layers.{}.mixer.A_log"},
    {"ssd.d", "*.layers.{}.mixer.D"},
    {"ssd.dt_bias", "*.layers.{}.mixer.dt_bias"},
    {"ssd.norm", "*.layers.{}.mixer.norm.weight"},
    {"ssd.out_proj", "*.layers.{}.mixer.out_proj.weight"},
};

}  // namespace hyb::models
