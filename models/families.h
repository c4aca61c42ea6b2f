#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "models/config.h"
#include "models/plan.h"

namespace hyb::models {

class GgufConfig;
class GgufKeys;

/// One tensor of a family: the role under which a part asks for it and the name in the published
/// files. In the name, a leading `*` is each of the family's trunks, `{}` the layer index, and a
/// second `{}` the expert index. Several rows of one role are spellings in use, the preferred one
/// first. Matrices are stored [out, in].
///
/// Roles (H width, S hidden of a feed-forward, E experts, I hidden of an expert, L latent or H):
///   embed [vocab,H]  final_norm [H]  head [vocab,H]        model-wide, no layer index
///   layer_inputs.embed [rows,layers*width]  layer_inputs.projection [layers*width,H]
///   layer_inputs.norm [width]                              with layer_inputs, no layer index
///   altup.projection, altup.output [H,H]                   with altup, indexed by stream - 1;
///   or of all streams: altup.projections, altup.outputs [streams-1,H,H], no layer index
///   altup.router_norm, altup.scale [H]  altup.router [n,H]  altup.prediction [n*n,n]
///   altup.correction [n,n]                                 of a layer, with altup
///   low_rank.left [rank,H]  low_rank.right [H,rank]  low_rank.norm [H]     with low_rank
///   block0.norm, block1.norm, block2.norm [H]              norms of a layer, one per block
///   block0.post_norm, ... [H]                              with post_norm
///   block0.factor, ... [1]                                 with has_factor
///   attention.q [heads*head_dim,H] (with output_gate twice the rows: per head [q | gate])
///   attention.gate [heads,H]                               with head_gate
///   attention.k, attention.v [kv_heads*head_dim,H]  attention.o [H,heads*head_dim]
///   attention.q_norm, attention.k_norm [head_dim], or of all heads with whole_norm: with qk_norm
///   attention.sinks [heads]                                with sinks
///   attention.q_bias [heads*head_dim]  attention.k_bias, attention.v_bias [kv_heads*head_dim]
///   with biases            attention.o_bias [H]             with output_bias
///   ssd.in_proj [projection,H] rows z|x|B|C|dt  ssd.conv_weight [conv_dim,1,K]  ssd.conv_bias
///   ssd.a_log or ssd.rate, ssd.d, ssd.dt_bias [heads]  ssd.norm [inner]  ssd.out_proj [H,inner]
///   s6.in_proj [2*channels,H] rows x|z  s6.conv_weight [channels,1,K]  s6.conv_bias, s6.d,
///   s6.dt_bias [channels]  s6.x_proj [R+2N,channels] rows dt|B|C  s6.dt_proj [channels,R]
///   s6.a_log or s6.rate [channels,N]  s6.out_proj [H,channels]
///   s6.dt_norm [R]  s6.b_norm, s6.c_norm [N]               with weighted norms
///   delta.qkvz [conv_dim+values,H], per key head rows q|k|v|z, and delta.ba [2*value_heads,H], per
///   key head rows b|a; or
///   delta.qkv [conv_dim,H] rows q|k|v, or delta.q, delta.k and delta.v
///   delta.z [values,H]  delta.b and delta.a [value_heads,H]
///   delta.conv_weight [conv_dim,1,K], or delta.q_conv, delta.k_conv and delta.v_conv
///   delta.a_log or delta.rate, delta.dt_bias [value_heads], rate being -exp(a_log)
///   per_channel delta.a [value_heads*key_dim,H], or with a rank delta.a_a and delta.z_a [rank,H]
///   delta.a_b [value_heads*key_dim,rank]  delta.z_b [values,rank]
///   delta.dt_bias [value_heads*key_dim]
///   delta.norm [value_dim], of every head  delta.out_proj [H,values]
///   mla.q [heads*query,H], or mla.q_a [rank,H], mla.q_norm [rank] and mla.q_b [heads*query,rank]:
///   per head rows plain|turned
///   mla.kv_a [latent+turned,H]  mla.kv_norm [latent]  mla.o [H,heads*value]
///   mla.kv_b [heads*(plain+value),latent], per head rows plain|value, or mla.k_b
///   [heads,latent,plain] and mla.v_b [heads,value,latent]
///   mla.gate [heads,H]                                     with head_gate
///   lightning.qkv [3*inner,H], per head rows q|k|v  lightning.gate [inner,H]
///   lightning.norm [inner]  lightning.out_proj [H,inner]; with a rope lightning.qkv rows are of
///   all heads q|k|v  lightning.q_norm, lightning.k_norm [head_dim] conv.in_proj [3*channels,H]
///   rows B|C|x  conv.weight [channels,1,K] conv.out_proj [H,channels] mlp.gate_up [2S,H] rows
///   gate|up, or mlp.gate and mlp.up [S,H]  mlp.down [H,S] layer_input.gate [width,H]
///   layer_input.projection [H,width] moe.router [E,H]  moe.correction_bias [E] moe.gate_up
///   [E,2I,L] rows gate|up and moe.down [E,L,I], or one tensor per expert: moe.expert_gate,
///   moe.expert_up [I,L] and moe.expert_down [L,I] with separate also moe.gate_stack and
///   moe.up_stack [E,I,L] for moe.gate_up, their biases being moe.gate_bias and moe.up_bias [E,I]
///   with alternating moe.gate_up [E,2I,L] rows gate, up, gate, ... and moe.down [E,L,I], or
///   moe.gate_up_transposed [E,L,2I] and moe.down_transposed [E,I,L]
///   moe.router_bias [E]  moe.gate_up_bias [E,2I], as the rows  moe.down_bias [E,L]  with biases
///   moe.latent_in [L,H]  moe.latent_out [H,L]
///   moe.shared_gate_up [2S,H], or moe.shared_gate and moe.shared_up  moe.shared_down [H,S]
///   moe.shared_expert_gate [1,H]                           with shared_gate
///   draft.embedding_norm, draft.hidden_norm, draft.norm [H]  draft.fc [H,2H] columns of the
///   embedding | of the hidden                              of the draft layer
///   draft.fc [H,3H]  draft.head [its vocab,H]  attention.q, k and v with 2H columns: embedding |
///   hidden                                                 the same of an EAGLE-3 head
/// Where a family names two layouts, the files decide.
struct TensorName {
  std::string_view role;
  std::string_view name;
};

struct GgufArchitecture;

/// Where most families have their text part.
inline constexpr std::string_view usual_trunks[] = {"model"};

/// A family: config.json -> Plan, and where its tensors are found. One file in families/ each.
struct Family {
  std::span<const std::string_view> model_types = {};
  Plan (*plan)(const Config&) = nullptr;
  std::span<const TensorName> names = {};
  std::span<const std::string_view> trunks = usual_trunks;  ///< what replaces `*` in names
  /// The same in the draft layer, whose index is counted from 0.
  std::span<const std::string_view> draft_trunks = {};
  /// What config.json says of a draft layer; null: the family has none.
  std::optional<DraftLayer> (*draft)(const Config&) = nullptr;
  /// Prefixes of tensors that are known and not used: draft layers, vision.
  std::span<const std::string_view> unused = {};
  /// Layers after the last one of the plan are of drafts, and not used.
  bool drafts_follow = false;
  /// How GGUF files have its models; null: they are read from folders alone.
  std::span<const GgufArchitecture> (*gguf)() = nullptr;
};

/// How llama.cpp's converter writes a family's models: metadata -> config.json -> Plan, and where
/// the tensors of a GGUF file are found.
struct GgufArchitecture {
  std::string_view name;  ///< general.architecture
  GgufConfig (*config)(const GgufKeys&);
  Family family;  ///< its plan knows what the converter did to the weights
};

/// One line per family, sorted by name.
extern const Family bailing_hybrid;
extern const Family bamba;
extern const Family cohere2;
extern const Family falcon_h1;
extern const Family gemma2;
extern const Family gemma3;
extern const Family gemma3n;
extern const Family gemma4;
extern const Family gpt_oss;
extern const Family granite;
extern const Family granite_swa;
extern const Family granite_hybrid;
extern const Family jamba;
extern const Family kimi_linear;
extern const Family lfm2;
extern const Family lfm3;
extern const Family llama;
extern const Family llama4;
extern const Family mamba;
extern const Family mamba2;
extern const Family mellum;
extern const Family minimax;
extern const Family ministral3;
extern const Family nemotron_h;
extern const Family olmo_hybrid;
extern const Family qwen2;
extern const Family qwen3;
extern const Family qwen3_5;
extern const Family qwen3_next;
extern const Family smollm3;

/// Every known family, in that order.
std::span<const Family* const> families();

/// Describes a model; `with_drafts`: with its draft layer, where config.json says that there is
/// one.
Plan plan_of(const Config& config, bool with_drafts);

/// Whether a tensor of this name is of pictures or sound, of which no family reads anything.
bool is_of_other_media(std::string_view tensor);

/// The family of config's model_type. Throws Error(model) that lists the known ones.
const Family& family_of(const Config& config);

}  // namespace hyb::models
