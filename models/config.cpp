#include "models/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::models {
namespace {

constexpr std::size_t config_bytes_max = 16U << 20;
constexpr std::size_t list_max = 1U << 16;

/// The value as an error message shows it.
std::string quoted_json(const Json& value) {
  if (value.is_string()) return quote_name(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  const std::string text = to_text(value);
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

/// Numbers as JSON, as Python's words for what JSON can't write, or wrapped in {"__float__": word}.
std::optional<double> as_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_object() && value.size() == 1 && value.contains("__float__")) {
    return as_number(value["__float__"]);
  }
  if (!value.is_string()) return std::nullopt;
  const std::string& word = value.get_ref<const std::string&>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (word == "Infinity" || word == "inf" || word == "+inf") return infinity;
  if (word == "-Infinity" || word == "-inf") return -infinity;
  return std::nullopt;
}

/// A number in quotes, as lists of limits have it.
std::optional<double> as_decimal(const std::string& text) {
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::int32_t> as_integer(const Json& value, IntRange range) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  // Every legal value is far below 2^53, so the detour over double loses nothing.
  if (std::floor(number) != number || number < range.low || number > range.high) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(number);
}

/// `text_config` (or `llm_config`) of a model with more than text, with the keys that concern the
/// whole model.
Json text_part(Json json) {
  const char* const part = json.contains("text_config") ? "text_config" : "llm_config";
  if (!json.contains(part) || !json[part].is_object()) return json;
  Json text = std::move(json[part]);
  for (const char* key :
       {"quantization_config", "quantization", "tie_word_embeddings", "dtype", "torch_dtype"}) {
    if (!text.contains(key) && json.contains(key)) text[key] = std::move(json[key]);
  }
  if (json.contains("tie_word_embeddings")) {
    text["outer_tie_word_embeddings"] = std::move(json["tie_word_embeddings"]);
  }
  return text;
}

Json parse_object(std::string_view text, std::string_view source) {
  Json json = parse_json(text, source, {.bytes_max = config_bytes_max, .python_numbers = true});
  if (!json.is_object()) {
    throw Error(ErrorKind::model, std::string(source) + ": must be a JSON object");
  }
  return json;
}

/// Keys of GGUF files (ARCH.KEY) that became keys of a config.json.
constexpr std::pair<std::string_view, std::string_view> gguf_keys[] = {
    {"vocab_size", "vocab_size"},
    {"hidden_size", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"norm_eps", "attention.layer_norm_rms_epsilon"},
    {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"intermediate_size", "feed_forward_length"},
    {"block_ff_dim", "feed_forward_length"},
    {"rope_theta", "rope.freq_base"},
    {"rope_local_base_freq", "rope.freq_base_swa"},
    {"partial_rotary_factor", "rope.dimension_count"},
    {"rope_scaling", "rope.scaling.type"},
    {"sliding_window", "attention.sliding_window"},
    {"num_experts", "expert_count"},
    {"num_local_experts", "expert_count"},
    {"n_routed_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"attention_multiplier", "attention.scale"},
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"logits_scaling", "logit_scale"},
    {"conv_L_cache", "shortconv.l_cache"},
    {"mamba_d_conv", "ssm.conv_kernel"},
    {"conv_kernel", "ssm.conv_kernel"},
    {"linear_conv_kernel_dim", "ssm.conv_kernel"},
    {"mamba_d_state", "ssm.state_size"},
    {"ssm_state_size", "ssm.state_size"},
    {"linear_key_head_dim", "ssm.state_size"},
    {"mamba_n_groups", "ssm.group_count"},
    {"n_groups", "ssm.group_count"},
    {"linear_num_key_heads", "ssm.group_count"},
    {"mamba_n_heads", "ssm.time_step_rank"},
    {"mamba_num_heads", "ssm.time_step_rank"},
    {"linear_num_value_heads", "ssm.time_step_rank"},
    {"mamba_d_ssm", "ssm.inner_size"},
};

}  // namespace

Config::Config(Json json, std::string source, std::string prefix)
    : json_(std::make_unique<const Json>(std::move(json))),
      source_(std::move(source)),
      prefix_(std::move(prefix)) {}

Config::Config(Config&&) noexcept = default;
Config& Config::operator=(Config&&) noexcept = default;
Config::~Config() = default;

Config Config::from_text(std::string_view text, std::string_view source) {
  return {text_part(parse_object(text, source)), std::string(source), ""};
}

Config Config::from_modelopt(const std::filesystem::path& path) {
  const Config file(parse_object(read_text_file(path, config_bytes_max), path.string()),
                    path.string(), "");
  const std::optional<Config> producer = file.object("producer");
  const std::optional<Config> quantization = file.object("quantization");
  if (!quantization) file.fail("quantization", "is missing");
  Json json = *quantization->json_;
  json["quant_method"] = producer ? producer->s("name", "unknown") : "unknown";
  return {std::move(json), file.source_, quantization->prefix_};
}

Config Config::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  Config config = from_text(read_text_file(path, config_bytes_max), path.string());
  const std::filesystem::path modelopt = folder / "hf_quant_config.json";
  if (!config.has("quantization_config") && is_listed(modelopt)) {
    config.modelopt_ = std::make_unique<const Config>(from_modelopt(modelopt));
  }
  return config;
}

void Config::fail(std::string_view key, const std::string& text) const {
  const auto architecture = json_->find("gguf_architecture");
  if (architecture != json_->end() && architecture->is_string()) {
    const auto known =
        std::ranges::find(gguf_keys, key, [](const auto& pair) { return pair.first; });
    const std::string own =
        known == std::end(gguf_keys)
            ? "its metadata"
            : fmt::format("key {}.{}", architecture->get<std::string>(), known->second);
    throw Error(ErrorKind::model, fmt::format("{}: {} ({}): {}", source_, own, key, text));
  }
  throw Error(ErrorKind::model, fmt::format("{}: {}{}: {}", source_, prefix_, key, text));
}

const Json* Config::find(const Keys& keys, std::string_view& found) const {
  for (const std::string_view key : keys.spellings) {
    const auto place = json_->find(key);
    if (place == json_->end() || place->is_null()) continue;
    found = key;
    return &*place;
  }
  return nullptr;
}

const Json& Config::at(const Keys& keys, std::string_view& found) const {
  const Json* value = find(keys, found);
  if (value == nullptr) fail(keys.spellings.front(), "is missing");
  return *value;
}

bool Config::has(const Keys& keys) const {
  std::string_view found;
  return find(keys, found) != nullptr;
}

bool Config::is_null(std::string_view key) const {
  const auto place = json_->find(key);
  return place != json_->end() && place->is_null();
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : json_->items()) {
    if (!value.is_null()) names.push_back(name);
  }
  return names;
}

std::int32_t Config::i(const Keys& keys, IntRange range) const {
  std::string_view key;
  const Json& value = at(keys, key);
  const std::optional<std::int32_t> integer = as_integer(value, range);
  if (!integer) {
    fail(key, fmt::format("must be a whole number from {} to {}, is {}", range.low, range.high,
                          quoted_json(value)));
  }
  return *integer;
}

std::int32_t Config::i(const Keys& keys, std::int32_t fallback, IntRange range) const {
  return has(keys) ? i(keys, range) : fallback;
}

double Config::f(const Keys& keys) const {
  std::string_view key;
  const Json& value = at(keys, key);
  const std::optional<double> number = as_number(value);
  // Plans hold floats: what overflows them is as invalid as an infinity.
  if (!number || !std::isfinite(static_cast<float>(*number))) {
    fail(key, "must be a finite number, is " + quoted_json(value));
  }
  return *number;
}

double Config::f(const Keys& keys, double fallback) const { return has(keys) ? f(keys) : fallback; }

bool Config::b(const Keys& keys, bool fallback) const {
  std::string_view key;
  const Json* value = find(keys, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(key, "must be true or false, is " + quoted_json(*value));
  return value->get<bool>();
}

std::string Config::s(const Keys& keys) const {
  std::string_view key;
  const Json& value = at(keys, key);
  if (!value.is_string()) fail(key, "must be text, is " + quoted_json(value));
  return value.get<std::string>();
}

std::string Config::s(const Keys& keys, std::string_view fallback) const {
  return has(keys) ? s(keys) : std::string(fallback);
}

bool Config::is_text(const Keys& keys, std::string_view text) const {
  std::string_view key;
  const Json* value = find(keys, key);
  return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == text;
}

bool Config::is_list(const Keys& keys) const {
  std::string_view found;
  const Json* const value = find(keys, found);
  return value != nullptr && value->is_array();
}

const Json& Config::list(const Keys& keys, std::string_view& found) const {
  const Json& value = at(keys, found);
  if (!value.is_array()) fail(found, "must be a list, is " + quoted_json(value));
  if (value.size() > list_max) {
    fail(found, fmt::format("has {} entries, at most {} make sense", value.size(), list_max));
  }
  return value;
}

std::vector<std::string> Config::strings(const Keys& keys) const {
  std::string_view key;
  std::vector<std::string> out;
  for (const Json& entry : list(keys, key)) {
    if (!entry.is_string()) fail(key, "must hold text only, holds " + quoted_json(entry));
    out.push_back(entry.get<std::string>());
  }
  return out;
}

std::vector<std::int32_t> Config::integers(const Keys& keys, IntRange range) const {
  std::string_view key;
  std::vector<std::int32_t> out;
  for (const Json& entry : list(keys, key)) {
    const std::optional<std::int32_t> integer = as_integer(entry, range);
    if (!integer) {
      fail(key, fmt::format("must hold whole numbers from {} to {}, holds {}", range.low,
                            range.high, quoted_json(entry)));
    }
    out.push_back(*integer);
  }
  return out;
}

std::vector<double> Config::numbers(const Keys& keys) const {
  std::string_view key;
  std::vector<double> out;
  for (const Json& entry : list(keys, key)) {
    std::optional<double> number = as_number(entry);
    if (!number && entry.is_string()) number = as_decimal(entry.get_ref<const std::string&>());
    if (!number) fail(key, "must hold numbers only, holds " + quoted_json(entry));
    out.push_back(*number);
  }
  return out;
}

std::optional<Config> Config::object(const Keys& keys) const {
  std::string_view key;
  const Json* value = find(keys, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(key, "must be an object, is " + quoted_json(*value));
  return Config(*value, source_, prefix_ + std::string(key) + ".");
}

std::vector<std::pair<std::string, Config>> Config::objects(const Keys& keys) const {
  std::string_view key;
  const Json& value = at(keys, key);
  if (!value.is_object()) fail(key, "must be an object, is " + quoted_json(value));
  std::vector<std::pair<std::string, Config>> out;
  for (const auto& [name, entry] : value.items()) {
    if (entry.is_null()) continue;
    const std::string place = fmt::format("{}.{}", key, quote_name(name));
    if (!entry.is_object()) fail(place, "must be an object, is " + quoted_json(entry));
    out.emplace_back(name, Config(entry, source_, prefix_ + place + "."));
  }
  return out;
}

std::optional<Config> Config::quantization() const {
  if (!has("quantization_config") && modelopt_ != nullptr) {
    return Config(*modelopt_->json_, modelopt_->source_, modelopt_->prefix_);
  }
  return object({"quantization_config", "quantization"});
}

Config Config::with_quantization(std::string_view method) const {
  Json json = *json_;
  json["quantization_config"] = {{"quant_method", method}};
  Config config = with(std::move(json));
  config.assumes_quantization_ = true;
  return config;
}

Config Config::with(Json json) const {
  Config config(std::move(json), source_, prefix_);
  config.assumes_quantization_ = assumes_quantization_;
  if (modelopt_ != nullptr) {
    config.modelopt_ = std::make_unique<const Config>(modelopt_->with(*modelopt_->json_));
  }
  return config;
}

Config Config::without_quantization() const {
  Config config = without("quantization_config").without("quantization");
  config.modelopt_ = nullptr;
  return config;
}

Config Config::without(std::string_view key) const {
  Json json = *json_;
  json.erase(std::string(key));
  return with(std::move(json));
}

Config Config::with_defaults(std::string_view object) const {
  Json json = *json_;
  const Json defaults = parse_json(object, "defaults");
  for (const auto& [key, value] : defaults.items()) {
    if (!json.contains(key) || json[key].is_null()) json[key] = value;
  }
  return with(std::move(json));
}

DType Config::dtype(const Keys& keys, DType fallback) const {
  if (!has(keys)) return fallback;
  std::string name = s(keys);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "bfloat16") return DType::bf16;
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  std::string_view key;
  find(keys, key);
  fail(key, "must be bfloat16, float32 or float16, is " + quote_name(name));
}

}  // namespace hyb::models
