#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/machine/environment.h"
#include "core/base/json.h"

namespace hyb::app {

/// A model that could be given as MODEL.
struct ListedModel {
  std::string name;
  std::string model_type = {};  ///< of config.json; empty: it can't be read
  std::uint64_t bytes = 0;      ///< of the weights that are there; of a preset as published
  std::uint64_t q4_bytes = 0;   ///< of a preset
  std::string types = {};       ///< of a GGUF file or preset: "Q4_K, Q6_K, F32"
  std::int64_t parameters = 0;  ///< of a preset
  std::string trouble = {};     ///< why hyb can't run it; empty: it can
};

struct ModelList {
  std::filesystem::path hub = {};  ///< the Hugging Face cache; empty: the environment names none
  std::vector<ListedModel> models = {};  ///< the demo, then GGUF files, then the cache's folders
  std::vector<ListedModel> presets = {};
  std::uint64_t memory_bytes = 0;  ///< that --memory auto allows
};

/// Reads configurations and headers of weights, no weights.
ModelList list_models(const Environment& environment);

std::string model_list_text(const ModelList& list, int columns);

/// {"cache": folder, "models": [{"name", "model_type", "bytes", "types", "complete", "trouble"}],
/// "presets": [{"name", "model_type", "parameters", "types", "bytes", "q4_bytes"}], "memory_bytes"}
Json model_list_json(const ModelList& list);

}  // namespace hyb::app
