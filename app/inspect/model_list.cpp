#include "app/inspect/model_list.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/model/model_source.h"
#include "app/runtime/model_outline.h"
#include "app/ui/table.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/gguf.h"
#include "core/io/gguf_stores.h"
#include "core/io/model_folder.h"
#include "core/io/tensor_files.h"
#include "models/families.h"
#include "models/gguf.h"
#include "models/published_formats.h"
#include "models/weight_index.h"

namespace hyb::app {
namespace {

namespace fs = std::filesystem;

/// Adds the size of a file of weights; false: it is not there, or not whole.
bool add_weights(const fs::path& file, ListedModel& model) {
  try {
    const SafetensorsFile whole(file);
    model.bytes += fs::file_size(file);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Adds a folder's files to `model`; returns what is missing of its weights, or an empty string.
std::string add_folder(const fs::path& folder, ListedModel& model) {
  const fs::path single = folder / "model.safetensors";
  if (is_listed(single)) {
    return add_weights(single, model) ? "" : "model.safetensors is not whole";
  }
  const fs::path index = folder / "model.safetensors.index.json";
  if (!is_listed(index)) {
    const std::string other = other_format_text(folder);
    return other.empty() ? "no weights" : "no safetensors: " + other.substr(0, other.find(','));
  }
  std::string first;
  std::size_t missing = 0;
  const std::vector<std::string> shards = read_shard_index(index).files;
  for (const std::string& shard : shards) {
    if (add_weights(folder / shard, model)) continue;
    if (missing++ == 0) first = shard;
  }
  if (missing == 0) return "";
  return fmt::format("{} of {} shards missing or not whole, such as {}", missing, shards.size(),
                     first);
}

bool is_supported(std::string_view model_type) {
  const auto all = models::families();
  return std::any_of(all.begin(), all.end(), [&](const models::Family* family) {
    const auto& types = family->model_types;
    return std::find(types.begin(), types.end(), model_type) != types.end();
  });
}

ListedModel cached_model(const std::string& name, const Environment& environment) {
  ListedModel model = {.name = name};
  try {
    // Its folder: other stores may have the name as well.
    const auto snapshot = find_hub_snapshot(name, environment.hub);
    if (!snapshot) refuse_model(name, "is no name of the form org/name[@revision]");
    const ModelSource source = ModelSource::find(snapshot->string(), environment);
    const models::Config config = source.config();
    model.model_type = config.model_type();
    model.trouble = add_folder(*snapshot, model);
    if (!is_supported(model.model_type)) model.trouble = "model_type is not supported";
    if (model.trouble.empty() && !source.read(source.tokenizer_file())) {
      model.trouble = "no tokenizer.json";
    }
  } catch (const Error& error) {
    model.trouble = error.what();
  }
  return model;
}

/// The types of a file's tensors, those with the most bytes first.
std::string types_of(const GgufFiles& files) {
  std::map<std::string_view, double> bytes;
  for (const GgufTensor* tensor : files.tensors()) {
    const GgufBlock* const block = gguf_block(tensor->type);
    bytes[block == nullptr ? "others" : block->name] += static_cast<double>(tensor->bytes);
  }
  return names_by_size(bytes);
}

ListedModel stored_model(const StoredGguf& stored) {
  ListedModel model = {.name = stored.name, .trouble = stored.trouble};
  if (!model.trouble.empty()) return model;
  try {
    const GgufFiles files(stored.file);
    model.bytes = files.bytes();
    model.types = types_of(files);
    model.model_type = files.metadata().text("general.architecture").value_or("");
    model.model_type = models::gguf_config(files).model_type();
  } catch (const Error& error) {
    const std::string_view text = error.what(), path = stored.file.native();
    model.trouble = text.starts_with(path) ? text.substr(path.size() + 2) : text;
  }
  return model;
}

ListedModel preset_model(const std::string& name, const Environment& environment) {
  const models::Config config = ModelSource::find(name, environment).config();
  const models::Family& family = models::family_of(config);
  const models::Plan plan = family.plan(config);
  models::LoadOptions published;
  published.mxfp4_parameters = models::mxfp4_parameters(plan, family, config);
  models::LoadOptions q4 = published;
  q4.quantize = kernels::Quantize::q4;
  return {.name = name,
          .model_type = config.model_type(),
          .bytes = weight_bytes(plan, kernels::Device::cpu, published),
          .q4_bytes = weight_bytes(plan, kernels::Device::cpu, q4),
          .types = weights_name(published),
          .parameters = models::parameters(models::required_weights(plan, family))};
}

ListedModel demo_model(const Environment& environment) {
  const ModelSource source = ModelSource::find("demo", environment);
  return {.name = "demo",
          .model_type = source.config().model_type(),
          .bytes = source.tensors().bytes()};
}

}  // namespace

ModelList list_models(const Environment& environment) {
  ModelList list = {.hub = hub_folder(environment.hub), .models = {demo_model(environment)}};
  std::set<std::string, std::less<>> ggufs;
  for (const StoredGguf& stored : stored_ggufs(environment.hub)) {
    ggufs.insert(stored.hub_name);
    ggufs.insert(stored.name);  // which then does not mean what the cache has
    list.models.push_back(stored_model(stored));
  }
  for (const std::string& name : models_in_hub(list.hub)) {
    if (!ggufs.contains(name)) list.models.push_back(cached_model(name, environment));
  }
  for (const std::string& name : preset_names()) {
    list.presets.push_back(preset_model(name, environment));
  }
  list.memory_bytes = resolve({}, environment).memory.bytes;
  return list;
}

std::string model_list_text(const ModelList& list, int width) {
  Table models = {.columns = columns_of("model|model_type|>weights|types|state")};
  std::string troubles;
  for (const ListedModel& model : list.models) {
    const bool is_whole = model.trouble.empty();
    models.rows.push_back({model.name, model.model_type, bytes_text(model.bytes), model.types,
                           is_whole ? "complete" : "can't run"});
    if (!is_whole) troubles += sanitized_line(model.name + ": " + model.trouble) + '\n';
  }
  if (!troubles.empty()) troubles = "\nwhat can't run:\n" + troubles;
  Table presets = {.columns = columns_of("preset|>params|>weights|types|>q4|fits here")};
  for (const ListedModel& preset : list.presets) {
    presets.rows.push_back({preset.name, parameters_text(preset.parameters),
                            bytes_text(preset.bytes), preset.types, bytes_text(preset.q4_bytes),
                            preset.bytes < list.memory_bytes      ? "yes"
                            : preset.q4_bytes < list.memory_bytes ? "as q4"
                                                                  : "no"});
  }
  const std::string cache = list.hub.empty()
                                ? "no Hugging Face cache: HF_HUB_CACHE, HF_HOME and HOME are unset"
                                : "Hugging Face cache: " + sanitized_line(list.hub.string());
  return fitted_text(models, width) + troubles + '\n' + cache + "\n\n" +
         wrapped(
             "configurations without weights, for fit, inspect and bench --random-weights; by "
             "their weights alone they fit in " +
                 bytes_text(list.memory_bytes) + " or not:",
             width) +
         "\n\n" + fitted_text(presets, width);
}

Json model_list_json(const ModelList& list) {
  Json models = Json::array(), presets = Json::array();
  for (const ListedModel& model : list.models) {
    models.push_back({{"name", model.name},
                      {"model_type", model.model_type},
                      {"bytes", model.bytes},
                      {"types", model.types},
                      {"complete", model.trouble.empty()},
                      {"trouble", model.trouble}});
  }
  for (const ListedModel& preset : list.presets) {
    presets.push_back({{"name", preset.name},
                       {"model_type", preset.model_type},
                       {"parameters", preset.parameters},
                       {"types", preset.types},
                       {"bytes", preset.bytes},
                       {"q4_bytes", preset.q4_bytes}});
  }
  return {{"cache", list.hub.string()},
          {"models", models},
          {"presets", presets},
          {"memory_bytes", list.memory_bytes}};
}

}  // namespace hyb::app
