#pragma once

#include <span>
#include <string_view>

#include "models/config.h"
#include "models/plan.h"

namespace hyb::models {

/// One tensor of a family: the role the walker asks for and the name in the published files. In the
/// name `{}` stands for the layer index, and a second `{}` for the expert index. Several rows of
/// one role are spellings in use, the preferred one first. Matrices are stored [out, in].
///
/// Roles (H width, S hidden of a feed-forward, E experts, I hidden of an expert):
///   embed [vocab,H]  final_norm [H]  head [vocab,H]        model-wide, no layer index
///   block0.norm, block1.norm [H]                           norms of a layer, one per block
///   attention.q [heads*head_dim,H] (with output_gate twice the rows: per head [q | gate])
///   attention.k, attention.v [kv_heads*head_dim,H]  attention.o [H,heads*head_dim]
///   attention.q_norm, attention.k_norm [head_dim]          with qk_norm
///   attention.q_bias, attention.k_bias, attention.v_bias, attention.o_bias   with bias
///   ssd.in_proj [projection,H] rows z|x|B|C|dt  ssd.conv_weight [conv_dim,1,K]  ssd.conv_bias
///   ssd.a_log, ssd.d, ssd.dt_bias [heads]  ssd.norm [inner]  ssd.out_proj [H,inner]
///   delta.qkvz, delta.ba (rows grouped per key head)  delta.conv_weight [conv_dim,1,K]
///   delta.a_log, delta.dt_bias [value_heads]  delta.norm [value_dim]  delta.out_proj
///   mlp.gate_up [2S,H] rows gate|up, or mlp.gate and mlp.up [S,H]  mlp.down [H,S]
///   moe.router [E,H]  moe.correction_bias [E]
///   moe.gate_up [E,2I,H] rows gate|up and moe.down [E,H,I], or one tensor per expert:
///   moe.expert_gate, moe.expert_up [I,H] and moe.expert_down [H,I] (latent width for H where set)
///   moe.latent_in [latent,H]  moe.latent_out [H,latent]
///   moe.shared_gate_up [2S,H], or moe.shared_gate and moe.shared_up  moe.shared_down [H,S]
///   moe.shared_expert_gate [1,H]                           with shared_gate
struct TensorName {
  std::string_view role;
  std::string_view name;
};

/// A family: config.json -> Plan, and where its tensors are found. One file in families/ each.
struct Family {
  std::span<const std::string_view> model_types;
  Plan (*plan)(const Config&);
  std::span<const TensorName> names;
  bool runs;  ///< false: plan, inspect and fit only; running it comes later
};

/// One line per family, sorted by name.
extern const Family granite_hybrid;
extern const Family nemotron_h;
extern const Family qwen3_next;

/// Every family hyb knows, in that order.
std::span<const Family* const> families();

/// The family of config's model_type. Throws Error(model) that lists the known ones.
const Family& family_of(const Config& config);

}  // namespace hyb::models
