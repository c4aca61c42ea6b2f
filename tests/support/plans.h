#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/io/file.h"
#include "models/config.h"
#include "models/families.h"

namespace hyb::testing {

/// Sets a key of config.json (of its text_config, if it has one) to a JSON value; an empty value
/// removes the key.
struct Edit {
  std::string key;
  std::string value;
};

inline models::Config edited(const std::filesystem::path& folder, const std::vector<Edit>& edits) {
  const std::filesystem::path path = folder / "config.json";
  const JsonLimits python = {.python_numbers = true};
  Json json = parse_json(read_whole_file(path, 1U << 20), path.string(), python);
  Json& read = json.contains("text_config") ? json["text_config"] : json;
  for (const Edit& edit : edits) {
    read.erase(edit.key);
    if (!edit.value.empty()) read[edit.key] = parse_json(edit.value, edit.key, python);
  }
  return models::Config::from_text(to_text(json), folder.filename().string() + "/config.json");
}

inline models::Config preset(const std::string& name, const std::vector<Edit>& edits = {}) {
  const std::filesystem::path root = std::filesystem::path(HYB_TESTS_DIR).parent_path();
  return edited(root / "models/presets" / name, edits);
}

/// Of a golden fixture: for families of which no published file is at hand.
inline models::Plan fixture_plan(const std::string& name, const std::vector<Edit>& edits = {}) {
  const models::Config config =
      edited(std::filesystem::path(HYB_TESTS_DIR) / "golden" / name, edits);
  return models::family_of(config).plan(config);
}

inline models::Plan plan_of(const std::string& name, const std::vector<Edit>& edits = {}) {
  const models::Config config = preset(name, edits);
  return models::family_of(config).plan(config);
}

/// A layer_types list of `layers` entries: `attention` at the given places, else `other`.
inline std::string layer_types(int layers, const std::vector<int>& at,
                               const std::string& attention = "attention",
                               const std::string& other = "mamba") {
  Json list = Json::array();
  for (int layer = 0; layer < layers; ++layer) list.push_back(other);
  for (const int layer : at) list[static_cast<std::size_t>(layer)] = attention;
  return to_text(list);
}

// Published shapes that differ from a preset in a few values.

inline std::vector<Edit> granite_1b() {
  return {{"hidden_size", "1536"},       {"num_attention_heads", "12"},
          {"num_key_value_heads", "4"},  {"mamba_n_heads", "48"},
          {"intermediate_size", "4096"}, {"shared_intermediate_size", "4096"}};
}

inline std::vector<Edit> granite_small() {
  return {{"hidden_size", "4096"},      {"num_attention_heads", "32"},
          {"num_key_value_heads", "8"}, {"mamba_n_heads", "128"},
          {"num_local_experts", "72"},  {"num_experts_per_tok", "10"},
          {"intermediate_size", "768"}, {"shared_intermediate_size", "1536"}};
}

inline std::vector<Edit> nemotron_super() {
  return {
      {"hidden_size", "4096"},
      {"num_hidden_layers", "88"},
      {"hybrid_override_pattern",
       "\"MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEM"
       "E\""},
      {"mamba_num_heads", "128"},
      {"n_routed_experts", "512"},
      {"num_experts_per_tok", "22"},
      {"moe_intermediate_size", "2688"},
      {"moe_latent_size", "1024"},
      {"moe_shared_expert_intermediate_size", "5376"},
      {"routed_scaling_factor", "5.0"}};
}

inline std::vector<Edit> nemotron_nano_9b() {
  return {
      {"hidden_size", "4480"},
      {"num_hidden_layers", "56"},
      {"hybrid_override_pattern", "\"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\""},
      {"intermediate_size", "15680"}};
}

}  // namespace hyb::testing
