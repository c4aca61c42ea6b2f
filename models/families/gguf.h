#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/io/gguf.h"
#include "models/families.h"
#include "models/families/common.h"

namespace hyb::models {

/// The families' files share this where they say how a model of theirs is written in a GGUF file.

/// Error(model) that begins with the file's name.
[[noreturn]] void refuse_gguf(const GgufFiles& files, const std::string& text);

/// The keys of one architecture, ARCH.KEY, as they are needed for config.json.
class GgufKeys {
 public:
  GgufKeys(const GgufFiles& files, std::string_view architecture)
      : files_(files), prefix_(std::string(architecture) + ".") {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return files_.metadata().has(name(key)); }

  std::int64_t integer(std::string_view key) const {
    const auto value = files_.metadata().integer(name(key));
    if (!value) missing(key);
    return *value;
  }
  std::int64_t integer(std::string_view key, std::int64_t fallback) const {
    return files_.metadata().integer(name(key)).value_or(fallback);
  }
  /// Returns the shortest number that rounds to the f32 in the file, which is what config.json had.
  double real(std::string_view key) const;
  double real(std::string_view key, double fallback) const {
    return has(key) ? real(key) : fallback;
  }

  bool flag(std::string_view key, bool fallback) const {
    return files_.metadata().flag(name(key)).value_or(fallback);
  }

  /// One number for all layers, or one for each; absent: none.
  std::vector<std::int64_t> per_layer(std::string_view key) const {
    return files_.metadata().integers(name(key));
  }

  /// The same with an entry for every block, those of drafts too; a list must have that many.
  std::vector<std::int64_t> each_block(std::string_view key) const;

  /// A number that all layers have; a list must have the same everywhere.
  std::int64_t uniform(std::string_view key) const;

  std::string_view text(std::string_view key, std::string_view fallback) const {
    return files_.metadata().text(name(key)).value_or(fallback);
  }

  /// The numbers of an F32 tensor that is there, above 0, of which there must be `count`.
  std::vector<double> divisors(std::string_view tensor, std::int64_t count) const;

  const GgufTensor* tensor(std::string_view tensor) const { return files_.find(tensor); }
  bool has_tensor(std::string_view name) const { return tensor(name) != nullptr; }
  /// blk.LAYER.NAME; nullptr: the layer has none.
  const GgufTensor* tensor_of(std::int64_t layer, std::string_view name) const;
  /// The first layer that has one of this name; nullptr: none has.
  const GgufTensor* any_tensor(std::string_view name) const;
  const GgufFiles& files() const { return files_; }

  [[noreturn]] void fail(std::string_view key, const std::string& text) const;
  [[noreturn]] void missing(std::string_view key) const { fail(key, "it is missing"); }

 private:
  const GgufFiles& files_;
  std::string prefix_;
};

/// The config.json that is made of them.
class GgufConfig {
 public:
  explicit GgufConfig(std::string_view model_type);
  GgufConfig(GgufConfig&& other) noexcept;
  ~GgufConfig();

  void set(std::string_view key, bool value);
  void set(std::string_view key, std::int64_t value);
  void set(std::string_view key, double value);
  void set(std::string_view key, const char* value);
  void set(std::string_view key, const std::vector<std::int64_t>& values);
  void set(std::string_view key, const std::vector<std::string>& values);
  void set(std::string_view key, Json value);
  /// Under rope_scaling, where there is one.
  void set_rope(std::string_view key, Json value);
  /// The rope that was set is that of layers without windows; the others' has this theta alone.
  void set_window_rope(double theta);
  void set_linear_rope(double factor);

  std::string text() const;

 private:
  std::unique_ptr<Json> json_;
};

/// Rows of the embedding, which is right where keys differ.
std::int64_t gguf_vocabulary(const GgufKeys& keys);

/// Without the layers of drafts.
std::int64_t gguf_layers(const GgufKeys& keys);

std::int64_t gguf_head_dim(const GgufKeys& keys);

/// sliding_window and layer_types: by the file's period or list, else every `period`-th layer sees
/// everything. Without a window all do.
void set_gguf_windows(const GgufKeys& keys, GgufConfig& config, std::int64_t period,
                      std::int64_t usual_window = 0);

/// num_experts (under that key), num_experts_per_tok, and their width under `width`.
void set_gguf_experts(const GgufKeys& keys, GgufConfig& config, std::string_view experts,
                      std::string_view width);

/// Sets what all architectures have, those without attention, too: sizes, layers, whether the head
/// is tied.
GgufConfig gguf_base_config(const GgufKeys& keys, std::string_view model_type);

/// Sets what all with attention over keys of heads have. `scaling` is the kind of rope where there
/// is a factor without its kind.
GgufConfig gguf_common_config(const GgufKeys& keys, std::string_view model_type,
                              std::string_view scaling = "linear");

/// Sets what Gemma 3n and 4 share: windows, keys that layers share, embeddings per layer, the limit
/// of logits, and the rope of layers with windows.
void set_gguf_gemma_layers(const GgufKeys& keys, GgufConfig& config);

/// The four factors of Granite's families.
void set_gguf_granite_factors(const GgufKeys& keys, GgufConfig& config);

/// Heads of a recurrent mixer, and how wide each is: ssm.time_step_rank heads of ssm.inner_size,
/// which errors call `channels`.
struct GgufSsmHeads {
  std::int64_t count, width;
};
GgufSsmHeads gguf_ssm_heads(const GgufKeys& keys, const char* channels = "channels");

/// For every block a word: `recurrent` where it has no heads of keys, else `attention`.
std::vector<std::string> gguf_mixer_kinds(const GgufKeys& keys, const char* recurrent,
                                          const char* attention);

/// Mamba-2 as read_mamba reads it, but for the number of channels; returns that.
std::int64_t set_gguf_mamba(const GgufKeys& keys, GgufConfig& config);

/// Sets what mamba and mamba2 share, which have neither heads of attention nor feed-forwards.
GgufConfig gguf_mixer_config(const GgufKeys& keys, std::string_view model_type);

/// Refuses experts where an architecture's files may have some that hyb has no family for.
void refuse_gguf_experts(const GgufKeys& keys);

/// visit(part) of every part, which may change it.
template <typename Visit>
void change_parts(std::vector<Layer>& layers, const Visit& visit) {
  for (Layer& layer : layers) {
    for (Block& block : layer.blocks) {
      for (Part& part : block.parts) std::visit(visit, part);
    }
  }
}

/// Rows of q and k are stored as pairs of neighbours.
Plan with_neighbours(Plan plan);

/// Gate and up of experts are stored as a tensor each, in order.
Plan with_separate_experts(Plan plan);

/// Norms are stored with 1 added.
Plan with_whole_norms(Plan plan);
/// Both in a draft layer.
std::optional<DraftLayer> whole_and_separate(std::optional<DraftLayer> draft);

/// A family's table, as Family::gguf gives it.
template <const auto& table>
std::span<const GgufArchitecture> table_of() {
  return table;
}

/// Names that most architectures share, to be joined() with an architecture's own.
inline constexpr TensorName gguf_names[] = {
    {"embed", "token_embd.weight"},
    {"head", "output.weight"},
    {"final_norm", "output_norm.weight"},
    {"block0.norm", "blk.{}.attn_norm.weight"},
    {"block1.norm", "blk.{}.ffn_norm.weight"},
    {"attention.q", "blk.{}.attn_q.weight"},
    {"attention.k", "blk.{}.attn_k.weight"},
    {"attention.v", "blk.{}.attn_v.weight"},
    {"attention.o", "blk.{}.attn_output.weight"},
    {"attention.q_norm", "blk.{}.attn_q_norm.weight"},
    {"attention.k_norm", "blk.{}.attn_k_norm.weight"},
    {"mlp.gate", "blk.{}.ffn_gate.weight"},
    {"mlp.up", "blk.{}.ffn_up.weight"},
    {"mlp.down", "blk.{}.ffn_down.weight"},
};
/// Mamba-2.
inline constexpr TensorName gguf_mamba_names[] = {
    {"ssd.in_proj", "blk.{}.ssm_in.weight"},
    {"ssd.conv_weight", "blk.{}.ssm_conv1d.weight"},
    {"ssd.conv_bias", "blk.{}.ssm_conv1d.bias"},
    {"ssd.rate", "blk.{}.ssm_a"},
    {"ssd.d", "blk.{}.ssm_d"},
    {"ssd.dt_bias", "blk.{}.ssm_dt.bias"},
    {"ssd.norm", "blk.{}.ssm_norm.weight"},
    {"ssd.out_proj", "blk.{}.ssm_out.weight"},
};

/// Mamba-1.
inline constexpr TensorName gguf_s6_names[] = {
    {"s6.in_proj", "blk.{}.ssm_in.weight"},
    {"s6.conv_weight", "blk.{}.ssm_conv1d.weight"},
    {"s6.conv_bias", "blk.{}.ssm_conv1d.bias"},
    {"s6.x_proj", "blk.{}.ssm_x.weight"},
    {"s6.dt_proj", "blk.{}.ssm_dt.weight"},
    {"s6.dt_bias", "blk.{}.ssm_dt.bias"},
    {"s6.rate", "blk.{}.ssm_a"},
    {"s6.d", "blk.{}.ssm_d"},
    {"s6.out_proj", "blk.{}.ssm_out.weight"},
    {"s6.dt_norm", "blk.{}.ssm_dt_norm.weight"},
    {"s6.b_norm", "blk.{}.ssm_b_norm.weight"},
    {"s6.c_norm", "blk.{}.ssm_c_norm.weight"},
};

inline constexpr TensorName gguf_expert_names[] = {
    {"moe.router", "blk.{}.ffn_gate_inp.weight"},
    {"moe.gate_stack", "blk.{}.ffn_gate_exps.weight"},
    {"moe.up_stack", "blk.{}.ffn_up_exps.weight"},
    {"moe.gate_up", "blk.{}.ffn_gate_up_exps.weight"},
    {"moe.down", "blk.{}.ffn_down_exps.weight"},
    {"moe.shared_gate", "blk.{}.ffn_gate_shexp.weight"},
    {"moe.shared_up", "blk.{}.ffn_up_shexp.weight"},
    {"moe.shared_down", "blk.{}.ffn_down_shexp.weight"},
    {"moe.shared_expert_gate", "blk.{}.ffn_gate_inp_shexp.weight"},
    {"moe.correction_bias", "blk.{}.exp_probs_b.bias"},
};

/// Gemma's second norms, and its layers' own embedding of the tokens.
inline constexpr TensorName gguf_post_norm_names[] = {
    {"block0.post_norm", "blk.{}.post_attention_norm.weight"},
    {"block1.post_norm", "blk.{}.post_ffw_norm.weight"},
};
inline constexpr TensorName gguf_input_names[] = {
    {"block2.post_norm", "blk.{}.post_norm.weight"},
    {"layer_input.gate", "blk.{}.inp_gate.weight"},
    {"layer_input.projection", "blk.{}.proj.weight"},
    {"layer_inputs.embed", "per_layer_token_embd.weight"},
    {"layer_inputs.projection", "per_layer_model_proj.weight"},
    {"layer_inputs.norm", "per_layer_proj_norm.weight"},
};

/// A draft layer, which is one more block.
inline constexpr TensorName gguf_draft_names[] = {
    {"draft.embedding_norm", "blk.{}.nextn.enorm.weight"},
    {"draft.hidden_norm", "blk.{}.nextn.hnorm.weight"},
    {"draft.fc", "blk.{}.nextn.eh_proj.weight"},
    {"draft.norm", "blk.{}.nextn.shared_head_norm.weight"},
};

inline constexpr TensorName gguf_bias_names[] = {
    {"attention.q_bias", "blk.{}.attn_q.bias"},
    {"attention.k_bias", "blk.{}.attn_k.bias"},
    {"attention.v_bias", "blk.{}.attn_v.bias"},
};

/// No architecture needs these: vision and sound beside the text and drafts, as ollama's files have
/// them; the divisors of a rope, which the configuration has.
inline constexpr std::string_view gguf_unused[] = {"v.", "a.",   "mm.",
                                                   "s.", "mtp.", "rope_freqs.weight"};

}  // namespace hyb::models
