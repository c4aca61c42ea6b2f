#include "models/gguf.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"
#include "models/families/common.h"

namespace hyb::models {
namespace {

[[noreturn]] void refuse(const GgufFiles& files, const std::string& text) {
  throw Error(ErrorKind::model, fmt::format("{}: {}", files.paths().front().string(), text));
}

/// The keys of one architecture, ARCH.KEY, as they are needed for config.json.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufFiles& files, std::string_view architecture)
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
  double real(std::string_view key) const {
    const auto value = files_.metadata().real(name(key));
    if (!value) missing(key);
    return *value;
  }
  double real(std::string_view key, double fallback) const {
    return files_.metadata().real(name(key)).value_or(fallback);
  }

  /// One number for all layers, or one for each; absent: none.
  std::vector<std::int64_t> per_layer(std::string_view key) const {
    return files_.metadata().integers(name(key));
  }

  /// A number that all layers have; a list must have the same everywhere.
  std::int64_t uniform(std::string_view key) const {
    const std::vector<std::int64_t> values = per_layer(key);
    if (values.empty()) missing(key);
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end()) {
      fail(key, "layers differ in it, which is not supported for this architecture");
    }
    return values.front();
  }

  std::string_view text(std::string_view key, std::string_view fallback) const {
    return files_.metadata().text(name(key)).value_or(fallback);
  }

  const GgufTensor* tensor(std::string_view tensor) const { return files_.find(tensor); }
  bool has_tensor(std::string_view name) const { return tensor(name) != nullptr; }
  const GgufFiles& files() const { return files_; }

  [[noreturn]] void fail(std::string_view key, const std::string& text) const {
    throw Error(ErrorKind::model, fmt::format("{}: {}", files_.metadata().place(name(key)), text));
  }
  [[noreturn]] void missing(std::string_view key) const { fail(key, "it is missing"); }

 private:
  const GgufFiles& files_;
  std::string prefix_;
};

/// Rows of the embedding, which is right where keys differ.
std::int64_t vocabulary_of(const ArchitectureKeys& k) {
  const GgufTensor* const embedding = k.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    refuse(k.files(), "it has no token_embd.weight, so it is no whole model");
  }
  return embedding->shape.front();
}

std::int64_t layers_of(const ArchitectureKeys& k) {
  return k.integer("block_count") - k.integer("nextn_predict_layers", 0);
}

std::int64_t head_dim_of(const ArchitectureKeys& k) {
  const std::int64_t heads = k.uniform("attention.head_count");
  if (heads <= 0) k.fail("attention.head_count", fmt::format("must be above 0, is {}", heads));
  const std::int64_t dim = k.integer("attention.key_length", k.integer("embedding_length") / heads);
  if (k.integer("attention.value_length", dim) != dim) {
    k.fail("attention.value_length", "keys and values of other lengths are not supported");
  }
  return dim;
}

/// rope_scaling as config.json has it; null: none.
Json rope_scaling_of(const ArchitectureKeys& k) {
  const std::string_view type =
      k.text("rope.scaling.type", k.has("rope.scale_linear") ? "linear" : "none");
  if (type == "none") return nullptr;
  const double factor = k.real("rope.scaling.factor", k.real("rope.scale_linear", 1.0));
  if (type == "linear") {
    return factor == 1.0 ? Json() : Json{{"rope_type", "linear"}, {"factor", factor}};
  }
  if (type != "yarn") {
    k.fail("rope.scaling.type", fmt::format("{} is not supported", quote_name(type)));
  }
  Json yarn = {
      {"rope_type", "yarn"},
      {"factor", factor},
      {"original_max_position_embeddings", k.integer("rope.scaling.original_context_length")}};
  const std::pair<const char*, const char*> numbers[] = {
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"rope.scaling.attn_factor", "attention_factor"},
      {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"}};
  for (const auto& [key, name] : numbers) {
    if (k.has(key)) yarn[name] = k.real(key);
  }
  return yarn;
}

/// What all architectures have.
Json common_config(const ArchitectureKeys& k, std::string_view model_type) {
  const std::int64_t head_dim = head_dim_of(k);
  const std::vector<std::int64_t> kv_heads = k.per_layer("attention.head_count_kv");
  Json config = {
      {"model_type", model_type},
      {"torch_dtype", "bfloat16"},
      {"vocab_size", vocabulary_of(k)},
      {"hidden_size", k.integer("embedding_length")},
      {"num_hidden_layers", layers_of(k)},
      {"max_position_embeddings", k.integer("context_length")},
      {"rms_norm_eps", k.real("attention.layer_norm_rms_epsilon")},
      {"tie_word_embeddings", !k.has_tensor("output.weight")},
      {"num_attention_heads", k.uniform("attention.head_count")},
      {"num_key_value_heads", kv_heads.empty()
                                  ? k.uniform("attention.head_count")
                                  : *std::max_element(kv_heads.begin(), kv_heads.end())},
      {"head_dim", head_dim},
      {"intermediate_size", k.uniform("feed_forward_length")},
      {"rope_theta", k.real("rope.freq_base", 10000.0)},
  };
  if (Json scaling = rope_scaling_of(k); !scaling.is_null()) config["rope_scaling"] = scaling;
  const std::int64_t rotary = k.integer("rope.dimension_count", head_dim);
  if (rotary != head_dim) {
    config["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head_dim);
  }
  return config;
}

void refuse_experts(const ArchitectureKeys& k) {
  if (k.integer("expert_count", 0) == 0) return;
  k.fail("expert_count", "experts of this architecture are not supported");
}

Json llama_config(const ArchitectureKeys& k) {
  refuse_experts(k);
  if (k.has_tensor("rope_freqs.weight")) {
    refuse(
        k.files(),
        "its rope_freqs.weight (the longer context of Llama 3.1 and later) is not supported yet");
  }
  return common_config(k, "llama");
}

Json qwen3_config(const ArchitectureKeys& k) { return common_config(k, "qwen3"); }

Json granite_config(const ArchitectureKeys& k) {
  refuse_experts(k);
  Json config = common_config(k, "granite");
  const std::pair<const char*, const char*> factors[] = {
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"}};
  for (const auto& [key, name] : factors) {
    if (k.has(key)) config[name] = k.real(key);
  }
  return config;
}

/// "sliding_attention" but for every sixth layer, or as the file says: by a period, or by layer.
Json gemma3_layer_types(const ArchitectureKeys& k, std::int64_t layers) {
  constexpr const char* key = "attention.sliding_window_pattern";
  std::vector<std::int64_t> windows = k.per_layer(key);
  const bool is_list = k.files().metadata().is_list(k.name(key));
  const std::int64_t period = windows.size() == 1 && !is_list ? windows.front() : 6;
  if (period < 1) k.fail(key, fmt::format("must be 1 or more, is {}", period));
  if (is_list && static_cast<std::int64_t>(windows.size()) != layers) {
    k.fail(key, fmt::format("it has {} entries for {} layers", windows.size(), layers));
  }
  Json types = Json::array();
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool has_window =
        is_list ? windows[static_cast<std::size_t>(i)] != 0 : i % period != period - 1;
    types.push_back(has_window ? "sliding_attention" : "full_attention");
  }
  return types;
}

Json gemma3_config(const ArchitectureKeys& k) {
  Json config = common_config(k, "gemma3_text");
  const std::int64_t layers = layers_of(k);
  const bool has_window = k.integer("attention.sliding_window", 0) > 0;
  config["layer_types"] =
      has_window
          ? gemma3_layer_types(k, layers)
          : Json(std::vector<std::string>(static_cast<std::size_t>(layers), "full_attention"));
  if (has_window) config["sliding_window"] = k.integer("attention.sliding_window");
  config["rope_local_base_freq"] = k.real("rope.freq_base_swa", 10000.0);
  // The file does not say what scores are divided by: only the 27B has another divisor.
  constexpr std::int64_t layers_of_27b = 62;
  config["query_pre_attn_scalar"] =
      layers == layers_of_27b ? k.integer("embedding_length") / k.uniform("attention.head_count")
                              : head_dim_of(k);
  if (k.has("final_logit_softcapping")) {
    config["final_logit_softcapping"] = k.real("final_logit_softcapping");
  }
  return config;
}

/// visit(part) of every part, which may change it.
template <typename Visit>
void change_parts(Plan& plan, const Visit& visit) {
  for (Layer& layer : plan.layers) {
    for (Block& block : layer.blocks) {
      for (Part& part : block.parts) std::visit(visit, part);
    }
  }
}

/// Rows of q and k are stored as pairs of neighbours.
Plan with_neighbours(Plan plan) {
  change_parts(plan, [](auto& part) {
    if constexpr (requires { part.rope; }) {
      if (part.rope) part.rope->neighbours = true;
    }
  });
  return plan;
}

/// Norms are stored with 1 added.
Plan with_whole_norms(Plan plan) {
  const auto whole = [](Norm& norm) {
    if (norm == Norm::rms_1p) norm = Norm::rms;
  };
  whole(plan.final_norm);
  for (Layer& layer : plan.layers) {
    for (Block& block : layer.blocks) {
      whole(block.norm);
      if (block.post_norm) whole(*block.post_norm);
    }
  }
  change_parts(plan, [&](auto& part) {
    if constexpr (requires { part.qk_norm; }) {
      if (part.qk_norm) whole(*part.qk_norm);
    }
  });
  return plan;
}

constexpr TensorName common_names[] = {
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
constexpr TensorName gemma_names[] = {
    {"block0.post_norm", "blk.{}.post_attention_norm.weight"},
    {"block1.post_norm", "blk.{}.post_ffw_norm.weight"},
};
constexpr auto gemma3_names = joined(common_names, gemma_names);
/// Vision and sound beside the text, as ollama's files have them.
constexpr std::string_view other_media[] = {"v.", "a.", "mm.", "s."};

struct Architecture {
  std::string_view name;  ///< general.architecture
  Json (*config)(const ArchitectureKeys&);
  Family family;
};

const Architecture gguf_architectures[] = {
    {"gemma3",
     gemma3_config,
     {.model_types = {},
      .plan = [](const Config& c) { return with_whole_norms(gemma3.plan(c)); },
      .names = gemma3_names,
      .unused = other_media}},
    {"granite",
     granite_config,
     {.model_types = {},
      .plan = [](const Config& c) { return with_neighbours(granite.plan(c)); },
      .names = common_names}},
    {"llama",
     llama_config,
     {.model_types = {},
      .plan = [](const Config& c) { return with_neighbours(llama.plan(c)); },
      .names = common_names}},
    {"qwen3",
     qwen3_config,
     {.model_types = {},
      .plan = [](const Config& c) { return qwen3.plan(c); },
      .names = common_names}},
};

const Architecture* find_architecture(std::string_view name) {
  const auto found =
      std::find_if(std::begin(gguf_architectures), std::end(gguf_architectures),
                   [&](const Architecture& architecture) { return architecture.name == name; });
  return found == std::end(gguf_architectures) ? nullptr : &*found;
}

/// Files that hold something else than a language model.
void refuse_other_kinds(const GgufFiles& files, std::string_view architecture) {
  const std::string_view type = files.metadata().text("general.type").value_or("model");
  if (type == "mmproj" || architecture == "clip") {
    refuse(files, "it is the vision or sound part of a model; give the file of the text model");
  }
  if (type == "adapter") {
    refuse(files, "it is an adapter (LoRA), which is not read; merge it into its model");
  }
  if (type == "imatrix") {
    refuse(files, "it is an importance matrix, which serves to quantise models; give the model");
  }
  const std::vector<const GgufTensor*> tensors = files.tensors();
  if (tensors.empty()) refuse(files, "it has a vocabulary and no weights; give the model's file");
  const bool is_draft =
      architecture == "eagle3" || architecture == "dflash" || architecture.ends_with("-assistant");
  const bool has_layers = std::any_of(tensors.begin(), tensors.end(), [](const GgufTensor* tensor) {
    return tensor->name.starts_with("blk.0.");
  });
  if (is_draft || !has_layers) {
    refuse(files, "it drafts for another model and is none itself, which is not supported");
  }
}

}  // namespace

Config gguf_config(const GgufFiles& files) {
  const auto architecture = files.metadata().text("general.architecture");
  if (!architecture) {
    throw Error(ErrorKind::model, files.metadata().place("general.architecture") +
                                      ": it is missing, so it is no language model");
  }
  refuse_other_kinds(files, *architecture);
  const Architecture* const known = find_architecture(*architecture);
  if (known == nullptr) {
    std::vector<std::string_view> names;
    for (const Architecture& one : gguf_architectures) names.push_back(one.name);
    refuse(files, fmt::format("the architecture {} is not read from GGUF files; {} are. The "
                              "model's folder of safetensors may do",
                              quote_name(*architecture), fmt::join(names, ", ")));
  }
  Json config = known->config(ArchitectureKeys(files, *architecture));
  config[gguf_key] = *architecture;
  return Config::from_text(config.dump(), files.paths().front().string());
}

const Family& gguf_family(const Config& config) {
  const Architecture* const known = find_architecture(config.s(gguf_key));
  if (known == nullptr) config.fail(gguf_key, "it is not known");
  return known->family;
}

}  // namespace hyb::models
