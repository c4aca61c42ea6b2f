#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace hyb::models {

/// Numbers of a tensor: how files may have them, and how they look where they are random.
enum class RoleKind : std::uint8_t {
  linear,          ///< matrix that publishers may quantise
  expert,          ///< the same, of routed experts
  expert_columns,  ///< the same, stored [in, out]
  plain,           ///< matrix that publishers leave as it is
  taps,            ///< of a convolution
  around_0,        ///< biases and other small tensors
  around_1,        ///< norms and factors
  zero,            ///< biases that training leaves near 0
  decay,           ///< below 0
  log_decay,       ///< the logarithm of what such a number takes away
  time_step,       ///< biases of time steps, before softplus
  none,
};

/// One tensor role: the word by which a part asks for a tensor and a family names it.
struct RoleRow {
  std::string_view name;
  RoleKind kind;
  std::string_view shape;  ///< as stored, [out, in]; its number of dimensions is checked
  std::string_view use;    ///< for readers alone
};

/// Every role there is. H width of the model, S hidden of a feed-forward, E experts, I hidden of an
/// expert, L width that experts work on, K width of a convolution; other sizes are members of the
/// part's struct. Of two layouts that a family names, its files decide.
inline constexpr auto role_table = [] {
  using enum RoleKind;
  const RoleRow rows[] = {
      {"", none, "", "numbers that no file has"},
      {"embed", plain, "vocab,H", "rows of tokens"},
      {"final_norm", around_1, "H", "before the head"},
      {"head", linear, "vocab,H", "logits; absent where the embedding serves"},
      {"layer_inputs.embed", linear, "rows,layers*width", "tokens as each layer sees them"},
      {"layer_inputs.projection", linear, "layers*width,H", "of the embedding"},
      {"layer_inputs.norm", around_1, "width", "of that, in every layer"},
      {"altup.projection", linear, "H,H", "makes stream n + 1; n stands for the layer"},
      {"altup.projections", linear, "streams-1,H,H", "the same of all streams"},
      {"altup.output", linear, "H,H", "of stream n + 1, before the streams are averaged"},
      {"altup.outputs", linear, "streams-1,H,H", "the same of all streams"},
      {"altup.router_norm", around_1, "H", "of what the router reads"},
      {"altup.router", linear, "streams,H", "modalities of a token"},
      {"altup.prediction", around_0, "streams*streams,streams", "streams by modalities"},
      {"altup.correction", around_0, "streams,streams", "factors by modalities"},
      {"altup.scale", around_1, "H", "on the stream that layers run on"},
      {"block0.norm", around_1, "H", "of a layer's first block"},
      {"block0.post_norm", around_1, "H", "after it, with post_norm"},
      {"block0.factor", around_1, "1", "on the stream after it, with has_factor"},
      {"block1.norm", around_1, "H", "the same of the second block"},
      {"block1.post_norm", around_1, "H", "after it"},
      {"block1.factor", around_1, "1", "on the stream after it"},
      {"block2.norm", around_1, "H", "the same of the third block"},
      {"block2.post_norm", around_1, "H", "after it"},
      {"block2.factor", around_1, "1", "on the stream after it"},
      {"part0.norm", around_1, "H", "of a block's first part, with norms_parts"},
      {"part0.post_norm", around_1, "H", "after it"},
      {"part1.norm", around_1, "H", "the same of the second part"},
      {"part1.post_norm", around_1, "H", "after it"},
      {"low_rank.left", linear, "rank,H", "residual of low rank beside a block"},
      {"low_rank.right", linear, "H,rank", "back to the width"},
      {"low_rank.norm", around_1, "H", "of what it gives"},
      {"attention.q", linear, "heads*head_dim,H", "with output_gate per head q | gate"},
      {"attention.k", linear, "kv_heads*head_dim,H", "an EAGLE-3 head has 2H columns"},
      {"attention.v", linear, "kv_heads*head_dim,H", "values; absent with keys_are_values"},
      {"attention.gate", linear, "heads,H", "with head_gate"},
      {"attention.o", linear, "H,heads*head_dim", "output projection"},
      {"attention.q_norm", around_1, "head_dim", "of a head, or with whole_norm of all"},
      {"attention.k_norm", around_1, "head_dim", "the same of keys"},
      {"attention.sinks", around_0, "heads", "logits of attention sinks"},
      {"attention.q_bias", around_0, "heads*head_dim", "with biases"},
      {"attention.k_bias", around_0, "kv_heads*head_dim", "the same of keys"},
      {"attention.v_bias", around_0, "kv_heads*head_dim", "the same of values"},
      {"attention.o_bias", around_0, "H", "with output_bias"},
      {"mla.q", linear, "heads*query_dim,H", "per head plain | turned, without q_rank"},
      {"mla.q_a", linear, "q_rank,H", "down projection of queries"},
      {"mla.q_norm", around_1, "q_rank", "of that"},
      {"mla.q_b", linear, "heads*query_dim,q_rank", "per head plain | turned"},
      {"mla.kv_a", linear, "latent+turned_dim,H", "latent | turned key: the cached row"},
      {"mla.kv_norm", around_1, "latent", "of its latents"},
      {"mla.kv_b", linear, "heads*(plain_dim+value_dim),latent", "per head keys | values"},
      {"mla.k_b", linear, "heads,latent,plain_dim", "keys alone, by columns"},
      {"mla.v_b", linear, "heads,value_dim,latent", "values alone"},
      {"mla.gate", linear, "heads,H", "with head_gate"},
      {"mla.o", linear, "H,heads*value_dim", "output projection"},
      {"ssd.in_proj", linear, "projection,H", "rows z | x | B | C | dt"},
      {"ssd.conv_weight", taps, "conv_dim,1,K", "over x | B | C"},
      {"ssd.conv_bias", around_0, "conv_dim", "of the convolution"},
      {"ssd.a_log", log_decay, "heads", "or ssd.rate"},
      {"ssd.rate", decay, "heads", "-exp(a_log)"},
      {"ssd.d", around_1, "heads", "factor on x beside the recurrence"},
      {"ssd.dt_bias", time_step, "heads", "on time steps"},
      {"ssd.norm", around_1, "inner", "gated norm of the output"},
      {"ssd.out_proj", linear, "H,inner", "output projection"},
      {"s6.in_proj", linear, "2*channels,H", "rows x | z"},
      {"s6.conv_weight", taps, "channels,1,K", "over x"},
      {"s6.conv_bias", around_0, "channels", "of the convolution"},
      {"s6.x_proj", linear, "dt_rank+2*state_dim,channels", "rows dt | B | C"},
      {"s6.dt_norm", around_1, "dt_rank", "with weighted norms"},
      {"s6.b_norm", around_1, "state_dim", "the same of B"},
      {"s6.c_norm", around_1, "state_dim", "the same of C"},
      {"s6.dt_proj", linear, "channels,dt_rank", "time steps"},
      {"s6.dt_bias", time_step, "channels", "on time steps"},
      {"s6.a_log", log_decay, "channels,state_dim", "or s6.rate"},
      {"s6.rate", decay, "channels,state_dim", "-exp(a_log)"},
      {"s6.d", around_1, "channels", "factor on x beside the scan"},
      {"s6.out_proj", linear, "H,channels", "output projection"},
      {"delta.qkvz", linear, "conv_dim+values,H", "per key head q | k | v | z"},
      {"delta.qkv", linear, "conv_dim,H", "q | k | v of all heads, or apart:"},
      {"delta.q", linear, "keys,H", "queries"},
      {"delta.k", linear, "keys,H", "keys"},
      {"delta.v", linear, "values,H", "values"},
      {"delta.z", linear, "values,H", "gate of the output"},
      {"delta.z_a", linear, "rank,H", "what z is made of, per_channel with a rank"},
      {"delta.z_b", linear, "values,rank", "z of that"},
      {"delta.ba", plain, "2*value_heads,H", "per key head b | a, or apart:"},
      {"delta.b", plain, "value_heads,H", "write strength, beta"},
      {"delta.a", plain, "decays,H", "decay, before its bias"},
      {"delta.a_a", linear, "rank,H", "what a is made of, per_channel with a rank"},
      {"delta.a_b", linear, "decays,rank", "a of that"},
      {"delta.conv_weight", taps, "conv_dim,1,K", "over q | k | v, or apart:"},
      {"delta.q_conv", taps, "keys,1,K", "over q"},
      {"delta.k_conv", taps, "keys,1,K", "over k"},
      {"delta.v_conv", taps, "values,1,K", "over v"},
      {"delta.a_log", log_decay, "value_heads", "or delta.rate"},
      {"delta.rate", decay, "value_heads", "-exp(a_log)"},
      {"delta.dt_bias", time_step, "decays", "on time steps"},
      {"delta.norm", around_1, "value_dim", "of every head's output"},
      {"delta.out_proj", linear, "H,values", "output projection"},
      {"lightning.qkv", linear, "3*inner,H", "per head q | k | v, with a rope of all heads"},
      {"lightning.gate", linear, "inner,H", "of the normed output"},
      {"lightning.q_norm", around_1, "head_dim", "with a rope"},
      {"lightning.k_norm", around_1, "head_dim", "the same of keys"},
      {"lightning.norm", around_1, "inner", "of the output"},
      {"lightning.out_proj", linear, "H,inner", "output projection"},
      {"conv.in_proj", linear, "3*channels,H", "rows B | C | x"},
      {"conv.weight", taps, "channels,1,K", "over B * x"},
      {"conv.out_proj", linear, "H,channels", "output projection"},
      {"mlp.gate_up", linear, "2S,H", "rows gate | up, or apart:"},
      {"mlp.gate", linear, "S,H", "of gated ones"},
      {"mlp.up", linear, "S,H", "what the activation multiplies, or takes"},
      {"mlp.down", linear, "H,S", "back to the width"},
      {"layer_input.gate", linear, "width,H", "of what a layer sees of the token"},
      {"layer_input.projection", linear, "H,width", "of that to the residual"},
      {"moe.router", plain, "E,H", "scores of experts"},
      {"moe.router_norm", around_1, "H", "of what the router reads"},
      {"moe.router_bias", around_0, "E", "with biases"},
      {"moe.correction_bias", zero, "E", "on the choice, not the weight, of an expert"},
      {"moe.expert_scale", around_1, "E", "factor on an expert's weight"},
      {"moe.expert_gate", expert, "I,L", "a tensor per expert, or of all of them:"},
      {"moe.expert_up", expert, "I,L", "rows up"},
      {"moe.expert_down", expert, "L,I", "back to the width"},
      {"moe.gate_up", expert, "E,2I,L", "rows gate | up, with alternating in turns"},
      {"moe.gate_up_transposed", expert_columns, "E,L,2I", "the same, its columns"},
      {"moe.gate_stack", expert, "E,I,L", "gate alone, with separate"},
      {"moe.up_stack", expert, "E,I,L", "up alone"},
      {"moe.down", expert, "E,L,I", "back to the width"},
      {"moe.down_transposed", expert_columns, "E,I,L", "the same, its columns"},
      {"moe.gate_up_bias", around_0, "E,2I", "with biases, as the rows"},
      {"moe.gate_bias", around_0, "E,I", "the same of gate alone"},
      {"moe.up_bias", around_0, "E,I", "the same of up alone"},
      {"moe.down_bias", around_0, "E,L", "on what an expert gives"},
      {"moe.latent_in", linear, "L,H", "with a latent width"},
      {"moe.latent_out", linear, "H,L", "back to the width"},
      {"moe.shared_gate_up", linear, "2S,H", "of the expert that every token goes through"},
      {"moe.shared_gate", linear, "S,H", "gate alone"},
      {"moe.shared_up", linear, "S,H", "up alone"},
      {"moe.shared_down", linear, "H,S", "back to the width"},
      {"moe.shared_expert_gate", plain, "1,H", "factor on it"},
      {"shared.norm", around_1, "2H", "of hidden | embedding, of a shared block's first layer"},
      {"shared.mlp_norm", around_1, "H", "before its feed-forward"},
      {"shared.linear", linear, "H,H", "of each layer that uses the block"},
      {"shared.q_left", linear, "rank,2H", "adapters, of each use, which stands for the expert"},
      {"shared.q_right", linear, "heads*head_dim,rank", "what they add to q"},
      {"shared.k_left", linear, "rank,2H", "the same of keys"},
      {"shared.k_right", linear, "kv_heads*head_dim,rank", "what they add to k"},
      {"shared.v_left", linear, "rank,2H", "the same of values"},
      {"shared.v_right", linear, "kv_heads*head_dim,rank", "what they add to v"},
      {"shared.mlp_left", linear, "rank,H", "the same of the feed-forward"},
      {"shared.mlp_right", linear, "2S,rank", "what they add to gate | up"},
      {"draft.embedding_norm", around_1, "H", "of the embedding of the token before"},
      {"draft.hidden_norm", around_1, "H", "of the model's hidden state"},
      {"draft.fc", linear, "H,2H", "embedding | hidden; of a head the layers it reads"},
      {"draft.norm", around_1, "H", "before the head"},
      {"draft.head", linear, "rows,H", "of an EAGLE-3 head, for its own vocabulary"},
  };
  return std::to_array(rows);
}();

/// A row of the table, made of its name. A name that the table does not have does not compile.
class Role {
 public:
  constexpr Role() = default;                               ///< none
  consteval Role(const char* name) : row_(row_of(name)) {}  // NOLINT(google-explicit-constructor)

  constexpr std::string_view name() const { return row().name; }
  constexpr RoleKind kind() const { return row().kind; }
  constexpr bool is_none() const { return row_ == 0; }
  constexpr bool is_matrix() const { return kind() <= RoleKind::plain; }
  constexpr bool is_of_experts() const {
    return kind() == RoleKind::expert || kind() == RoleKind::expert_columns;
  }
  /// The number of dimensions of the tensor.
  constexpr std::int64_t rank() const {
    return 1 + std::count(row().shape.begin(), row().shape.end(), ',');
  }

  auto operator<=>(const Role&) const = default;

 private:
  static consteval std::uint8_t row_of(std::string_view name) {
    for (std::uint8_t i = 0; i < std::size(role_table); ++i) {
      if (role_table[i].name == name) return i;
    }
    throw "roles.h has no such role";
  }
  constexpr const RoleRow& row() const { return role_table[row_]; }

  std::uint8_t row_ = 0;
};

}  // namespace hyb::models
