#include "models/families/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::models {
namespace {

constexpr const char* divisors_tensor = "rope_freqs.weight";

/// rope_scaling as config.json has it; null: none. Llama 3.1's is a tensor of divisors, by which
/// the kind of read_rope() is named that no config.json has.
Json rope_scaling_of(const GgufKeys& k, std::string_view usual) {
  const bool has_factor = k.has("rope.scaling.factor") || k.has("rope.scale_linear");
  // Files that llama.cpp itself has saved have 0 where there is none.
  const double stated = k.real("rope.scaling.factor", k.real("rope.scale_linear", 1.0));
  const double factor = stated == 0.0 ? 1.0 : stated;
  std::string_view type = k.text("rope.scaling.type", has_factor ? usual : "none");
  if (type == "linear" && factor == 1.0) type = "none";
  if (k.has_tensor(divisors_tensor)) {
    if (type != "none") {
      k.fail("rope.scaling.type", fmt::format("beside {} it is not supported", divisors_tensor));
    }
    const std::int64_t rotary = k.integer("rope.dimension_count", gguf_head_dim(k));
    return {{"rope_type", "divisors"}, {"divisors", k.divisors(divisors_tensor, rotary / 2)}};
  }
  if (type == "none") return nullptr;
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
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
      {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"}};
  for (const auto& [key, name] : numbers) {
    if (k.has(key)) yarn[name] = k.real(key);
  }
  if (yarn.contains("mscale_all_dim")) yarn["mscale"] = 1.0;
  // The converter's attention_factor; llama.cpp's own factor multiplies what follows without one.
  const double whole = k.real("rope.scaling.yarn_attn_factor", 1.0);
  const double more = k.real("rope.scaling.attn_factor", 1.0);
  if (whole != 1.0 || more != 1.0) {
    const double usual_magnitude = factor > 1.0 ? 0.1 * std::log(factor) + 1.0 : 1.0;
    yarn["attention_factor"] = more * (whole != 1.0 ? whole : usual_magnitude);
  }
  return yarn;
}

}  // namespace

void refuse_gguf(const GgufFiles& files, const std::string& text) {
  throw Error(ErrorKind::model, fmt::format("{}: {}", files.paths().front().string(), text));
}

GgufConfig::GgufConfig(std::string_view model_type)
    : json_(std::make_unique<Json>(Json{{"model_type", model_type}})) {}
GgufConfig::GgufConfig(GgufConfig&& other) noexcept = default;
GgufConfig::~GgufConfig() = default;

void GgufConfig::set(std::string_view key, bool value) { set(key, Json(value)); }
void GgufConfig::set(std::string_view key, std::int64_t value) { set(key, Json(value)); }
void GgufConfig::set(std::string_view key, double value) { set(key, Json(value)); }
void GgufConfig::set(std::string_view key, const char* value) { set(key, Json(value)); }
void GgufConfig::set(std::string_view key, const std::vector<std::int64_t>& values) {
  set(key, Json(values));
}
void GgufConfig::set(std::string_view key, const std::vector<std::string>& values) {
  set(key, Json(values));
}
void GgufConfig::set(std::string_view key, Json value) {
  (*json_)[std::string(key)] = std::move(value);
}

void GgufConfig::set_rope(std::string_view key, Json value) {
  if (const auto rope = json_->find("rope_scaling"); rope != json_->end()) {
    (*rope)[std::string(key)] = std::move(value);
  }
}

void GgufConfig::set_linear_rope(double factor) {
  set("rope_scaling", Json{{"rope_type", "linear"}, {"factor", factor}});
}

void GgufConfig::set_window_rope(double theta) {
  Json full = json_->value("rope_scaling", Json::object());
  json_->erase("rope_scaling");
  full["rope_theta"] = json_->at("rope_theta");
  set("rope_parameters",
      Json{{"full_attention", full},
           {"sliding_attention", {{"rope_theta", theta}, {"rope_type", "default"}}}});
}

std::string GgufConfig::text() const { return json_->dump(); }

double GgufKeys::real(std::string_view key) const {
  const auto value = files_.metadata().real(name(key));
  if (!value) missing(key);
  const auto narrow = static_cast<float>(*value);
  const bool is_narrow = std::isfinite(narrow) && static_cast<double>(narrow) == *value;
  return is_narrow ? std::stod(fmt::format("{}", narrow)) : *value;
}

std::vector<std::int64_t> GgufKeys::each_block(std::string_view key) const {
  std::vector<std::int64_t> values = per_layer(key);
  if (values.empty()) missing(key);
  const auto blocks = static_cast<std::size_t>(integer("block_count"));
  if (!files_.metadata().is_list(name(key))) values.resize(blocks, values.front());
  if (values.size() != blocks) {
    fail(key, fmt::format("it has {} entries for {} blocks", values.size(), blocks));
  }
  return values;
}

const GgufTensor* GgufKeys::tensor_of(std::int64_t layer, std::string_view name) const {
  return tensor(fmt::format("blk.{}.{}", layer, name));
}

const GgufTensor* GgufKeys::any_tensor(std::string_view name) const {
  const std::int64_t layers = gguf_layers(*this);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (const GgufTensor* found = tensor_of(layer, name)) return found;
  }
  return nullptr;
}

std::int64_t GgufKeys::uniform(std::string_view key) const {
  const std::vector<std::int64_t> values = per_layer(key);
  if (values.empty()) missing(key);
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end()) {
    fail(key, "layers differ in it, which is not supported for this architecture");
  }
  return values.front();
}

std::vector<double> GgufKeys::divisors(std::string_view name, std::int64_t count) const {
  const GgufTensor& found = *tensor(name);
  if (found.type != static_cast<std::uint32_t>(GgufType::f32) || found.elements() != count) {
    refuse_gguf(files_, fmt::format("tensor {}: it must be {} numbers of F32", name, count));
  }
  const std::vector<std::byte> bytes = files_.read(name);
  std::vector<double> numbers;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    float number = 0;
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    if (!(number > 0) || !std::isfinite(number)) {
      refuse_gguf(files_, fmt::format("tensor {}: number {} is {}, which divides no frequency",
                                      name, i, number));
    }
    numbers.push_back(number);
  }
  return numbers;
}

void GgufKeys::fail(std::string_view key, const std::string& text) const {
  throw Error(ErrorKind::model, fmt::format("{}: {}", files_.metadata().place(name(key)), text));
}

std::int64_t gguf_vocabulary(const GgufKeys& k) {
  const GgufTensor* const embedding = k.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    refuse_gguf(k.files(), "it has no token_embd.weight, so it is no whole model");
  }
  return embedding->shape.front();
}

std::int64_t gguf_layers(const GgufKeys& k) {
  constexpr std::int64_t blocks_max = 4096;
  const std::int64_t blocks = k.integer("block_count");
  const std::int64_t drafting = k.integer("nextn_predict_layers", 0);
  if (blocks < 1 || blocks > blocks_max) {
    k.fail("block_count", fmt::format("must be 1 to {}, is {}", blocks_max, blocks));
  }
  if (drafting < 0 || drafting >= blocks) {
    k.fail("nextn_predict_layers", fmt::format("is {} of {} blocks", drafting, blocks));
  }
  if (k.tensor_of(blocks, "attn_norm.weight") != nullptr) {
    k.fail("block_count", fmt::format("is {}, but there are tensors of block {}", blocks, blocks));
  }
  return blocks - drafting;
}

std::int64_t gguf_head_dim(const GgufKeys& k) {
  const std::int64_t heads = k.uniform("attention.head_count");
  if (heads <= 0) k.fail("attention.head_count", fmt::format("must be above 0, is {}", heads));
  const std::int64_t dim = k.integer("attention.key_length", k.integer("embedding_length") / heads);
  if (k.integer("attention.value_length", dim) != dim) {
    k.fail("attention.value_length", "keys and values of other lengths are not supported");
  }
  return dim;
}

void set_gguf_windows(const GgufKeys& k, GgufConfig& config, std::int64_t period,
                      std::int64_t usual_window) {
  constexpr const char* key = "attention.sliding_window_pattern";
  const std::int64_t layers = gguf_layers(k);
  const std::int64_t window = k.integer("attention.sliding_window", usual_window);
  const std::vector<std::int64_t> stated = k.per_layer(key);
  const bool is_list = k.files().metadata().is_list(k.name(key));
  if (stated.size() == 1 && !is_list) period = stated.front();
  if (period < 1) k.fail(key, fmt::format("must be 1 or more, is {}", period));
  if (is_list && static_cast<std::int64_t>(stated.size()) != layers) {
    k.fail(key, fmt::format("it has {} entries for {} layers", stated.size(), layers));
  }
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool has_window = window > 0 && (is_list ? stated[static_cast<std::size_t>(i)] != 0
                                                   : i % period != period - 1);
    types.push_back(has_window ? "sliding_attention" : "full_attention");
  }
  config.set("layer_types", types);
  if (window > 0) config.set("sliding_window", window);
}

void set_gguf_experts(const GgufKeys& k, GgufConfig& config, std::string_view experts,
                      std::string_view width) {
  config.set(experts, k.integer("expert_count"));
  config.set("num_experts_per_tok", k.uniform("expert_used_count"));
  config.set(width, k.uniform(k.has("expert_feed_forward_length") ? "expert_feed_forward_length"
                                                                  : "feed_forward_length"));
}

GgufConfig gguf_base_config(const GgufKeys& k, std::string_view model_type) {
  GgufConfig config(model_type);
  config.set("torch_dtype", "bfloat16");
  config.set("vocab_size", gguf_vocabulary(k));
  config.set("hidden_size", k.integer("embedding_length"));
  config.set("num_hidden_layers", gguf_layers(k));
  config.set("tie_word_embeddings", !k.has_tensor("output.weight"));
  return config;
}

GgufConfig gguf_common_config(const GgufKeys& k, std::string_view model_type,
                              std::string_view scaling) {
  if (!k.flag("attention.causal", true)) {
    k.fail("attention.causal", "it makes embeddings of texts, and hyb makes none");
  }
  const std::int64_t head_dim = gguf_head_dim(k), heads = k.uniform("attention.head_count");
  const std::vector<std::int64_t> kv_heads = k.per_layer("attention.head_count_kv");
  GgufConfig config = gguf_base_config(k, model_type);
  config.set("max_position_embeddings", k.integer("context_length"));
  const bool has_rms = k.has("attention.layer_norm_rms_epsilon");
  const bool has_other = k.has("attention.layer_norm_epsilon");
  if (has_rms || has_other) {  // else the family's file knows it, or its plan misses it
    config.set("rms_norm_eps", k.real(has_rms ? "attention.layer_norm_rms_epsilon"
                                              : "attention.layer_norm_epsilon"));
  }
  config.set("num_attention_heads", heads);
  // Layers without attention have 0.
  const auto most_kv_heads = std::max_element(kv_heads.begin(), kv_heads.end());
  const bool has_kv_heads = most_kv_heads != kv_heads.end() && *most_kv_heads != 0;
  config.set("num_key_value_heads", has_kv_heads ? *most_kv_heads : heads);
  config.set("head_dim", head_dim);
  const std::vector<std::int64_t> widths = k.per_layer("feed_forward_length");
  if (!widths.empty()) {
    config.set("intermediate_size", *std::max_element(widths.begin(), widths.end()));
  }
  config.set("rope_theta", k.real("rope.freq_base", 10000.0));
  if (Json rope = rope_scaling_of(k, scaling); !rope.is_null()) {
    config.set("rope_scaling", std::move(rope));
  }
  const std::int64_t rotary = k.integer("rope.dimension_count", head_dim);
  if (rotary < 1 || rotary > head_dim) {
    k.fail("rope.dimension_count", fmt::format("is {} of {} dims of a head", rotary, head_dim));
  }
  // So that, times head_dim, it is the whole number and a bit.
  config.set("partial_rotary_factor",
             std::min(1.0, (static_cast<double>(rotary) + 0.25) / static_cast<double>(head_dim)));
  return config;
}

void set_gguf_gemma_layers(const GgufKeys& k, GgufConfig& config) {
  set_gguf_windows(k, config, 5, k.integer("attention.sliding_window"));
  config.set_window_rope(k.real("rope.freq_base_swa", 10000.0));
  if (k.has("final_logit_softcapping")) {
    config.set("final_logit_softcapping", k.real("final_logit_softcapping"));
  }
  config.set("num_kv_shared_layers", k.integer("attention.shared_kv_layers", 0));
  config.set("hidden_size_per_layer_input", k.integer("embedding_length_per_layer_input", 0));
  if (const GgufTensor* const embed = k.tensor("per_layer_token_embd.weight")) {
    config.set("vocab_size_per_layer_input", embed->shape.empty() ? 0 : embed->shape.front());
  }
}

void set_gguf_granite_factors(const GgufKeys& k, GgufConfig& config) {
  const std::pair<const char*, const char*> factors[] = {
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"}};
  for (const auto& [key, name] : factors) {
    if (k.has(key)) config.set(name, k.real(key));
  }
  if (!k.has("attention.scale")) {
    config.set("attention_multiplier", 1.0 / std::sqrt(static_cast<double>(gguf_head_dim(k))));
  }
}

GgufSsmHeads gguf_ssm_heads(const GgufKeys& k, const char* channels) {
  const std::int64_t inner = k.integer("ssm.inner_size"), heads = k.integer("ssm.time_step_rank");
  if (heads < 1 || inner % heads != 0) {
    k.fail("ssm.time_step_rank",
           fmt::format("{} heads do not divide {} {}", heads, inner, channels));
  }
  return {.count = heads, .width = inner / heads};
}

std::vector<std::string> gguf_mixer_kinds(const GgufKeys& k, const char* recurrent,
                                          const char* attention) {
  std::vector<std::string> kinds;
  for (const std::int64_t kv_heads : k.each_block("attention.head_count_kv")) {
    kinds.emplace_back(kv_heads == 0 ? recurrent : attention);
  }
  return kinds;
}

std::int64_t set_gguf_mamba(const GgufKeys& k, GgufConfig& config) {
  const GgufSsmHeads heads = gguf_ssm_heads(k);
  config.set("mamba_n_heads", heads.count);
  config.set("mamba_d_head", heads.width);
  config.set("mamba_d_state", k.integer("ssm.state_size"));
  config.set("mamba_n_groups", k.integer("ssm.group_count", 1));
  config.set("mamba_d_conv", k.integer("ssm.conv_kernel"));
  config.set("mamba_conv_bias", k.any_tensor("ssm_conv1d.bias") != nullptr);
  return heads.count * heads.width;
}

GgufConfig gguf_mixer_config(const GgufKeys& k, std::string_view model_type) {
  GgufConfig config = gguf_base_config(k, model_type);
  config.set("layer_norm_epsilon", k.real("attention.layer_norm_rms_epsilon"));
  config.set("state_size", k.integer("ssm.state_size"));
  config.set("conv_kernel", k.integer("ssm.conv_kernel"));
  config.set("use_conv_bias", k.any_tensor("ssm_conv1d.bias") != nullptr);
  config.set("max_position_embeddings", k.integer("context_length", 0));
  return config;
}

void refuse_gguf_experts(const GgufKeys& k) {
  if (k.integer("expert_count", 0) == 0) return;
  k.fail("expert_count", "experts of this architecture are not supported");
}

namespace {

void make_separate(std::vector<Layer>& layers) {
  change_parts(layers, [](auto& part) {
    if constexpr (requires { part.separate; }) {
      part.separate = true;
      part.alternating = false;
    }
  });
}

}  // namespace

Plan with_neighbours(Plan plan) {
  change_parts(plan.layers, [](auto& part) {
    if constexpr (requires { part.rope; }) {
      if (part.rope) part.rope->neighbours = true;
    }
  });
  return plan;
}

Plan with_separate_experts(Plan plan) {
  make_separate(plan.layers);
  return plan;
}

namespace {

void make_whole(Norm& norm) {
  if (norm == Norm::rms_1p) norm = Norm::rms;
}

void make_whole(std::vector<Layer>& layers) {
  for (Layer& layer : layers) {
    for (Block& block : layer.blocks) {
      make_whole(block.norm);
      if (block.post_norm) make_whole(*block.post_norm);
    }
  }
  change_parts(layers, [](auto& part) {
    if constexpr (requires { part.qk_norm; }) {
      if (part.qk_norm) make_whole(*part.qk_norm);
    }
  });
}

}  // namespace

Plan with_whole_norms(Plan plan) {
  make_whole(plan.final_norm);
  make_whole(plan.layers);
  return plan;
}

std::optional<DraftLayer> whole_and_separate(std::optional<DraftLayer> draft) {
  if (!draft) return draft;
  make_whole(draft->norm);
  make_whole(draft->layers);
  make_separate(draft->layers);
  return draft;
}

}  // namespace hyb::models
