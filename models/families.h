#pragma once

#include <span>
#include <string_view>

#include "models/config.h"
#include "models/plan.h"

namespace hyb::models {

/// One tensor of a family: the role under which a part asks for it and the name in the published
/// files. In the name, a leading `*` is each of the family's trunks, `{}` the layer index, and a
/// second `{}` the expert index. Several rows of one role are spellings in use, the preferred one
/// first. Matrices are stored [out, in].
///
/// Roles (H width, S hidden of a feed-forward, E experts, I hidden of an expert, L latent or H):
///   embed [vocab,H]  final_norm [H]  head [vocab,H]        model-wide, no layer index
///   block0.norm, block1.norm [H]                           norms of a layer, one per block
///   attention.q [heads*head_dim,H] (with output_gate twice the rows: per head [q | gate])
///   attention.k, attention.v [kv_heads*head_dim,H]  attention.o [H,heads*head_dim]
///   attention.q_norm, attention.k_norm [head_dim]          with qk_norm
///   ssd.in_proj [projection,H] rows z|x|B|C|dt  ssd.conv_weight [conv_dim,1,K]  ssd.conv_bias
///   ssd.a_log, ssd.d, ssd.dt_bias [heads]  ssd.norm [inner]  ssd.out_proj [H,inner]
///   delta.qkvz [conv_dim+values,H], per key head rows q|k|v|z, and delta.ba [2*value_heads,H], per
///   key head rows b|a; or
///   delta.qkv [conv_dim,H] rows q|k|v, delta.z [values,H], delta.b and delta.a [value_heads,H]
///   delta.conv_weight [conv_dim,1,K]  delta.a_log, delta.dt_bias [value_heads]
///   delta.norm [value_dim], of every head  delta.out_proj [H,values]
///   conv.in_proj [3*channels,H] rows B|C|x  conv.weight [channels,1,K]
///   conv.out_proj [H,channels]
///   mlp.gate_up [2S,H] rows gate|up, or mlp.gate and mlp.up [S,H]  mlp.down [H,S]
///   moe.router [E,H]  moe.correction_bias [E]
///   moe.gate_up [E,2I,L] rows gate|up and moe.down [E,L,I], or one tensor per expert:
///   moe.expert_gate, moe.expert_up [I,L] and moe.expert_down [L,I]
///   moe.latent_in [L,H]  moe.latent_out [H,L]
///   moe.shared_gate_up [2S,H], or moe.shared_gate and moe.shared_up  moe.shared_down [H,S]
///   moe.shared_expert_gate [1,H]                           with shared_gate
/// Where a family names two layouts, the files decide.
struct TensorName {
  std::string_view role;
  std::string_view name;
};

/// A family: config.json -> Plan, and where its tensors are found. One file in families/ each.
struct Family {
  std::span<const std::string_view> model_types;
  Plan (*plan)(const Config&);
  std::span<const TensorName> names;
  std::span<const std::string_view> trunks = {};  ///< what replaces `*` in names
  /// Prefixes of tensors that are known and not used: draft layers, vision.
  std::span<const std::string_view> unused = {};
};

/// One line per family, sorted by name.
extern const Family bamba;
extern const Family falcon_h1;
extern const Family granite;
extern const Family granite_hybrid;
extern const Family lfm2;
extern const Family llama;
extern const Family nemotron_h;
extern const Family qwen3;
extern const Family qwen3_5;
extern const Family qwen3_next;

/// Every known family, in that order.
std::span<const Family* const> families();

/// The family of config's model_type. Throws Error(model) that lists the known ones.
const Family& family_of(const Config& config);

}  // namespace hyb::models
