#include "models/gguf.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "models/families/gguf.h"

namespace hyb::models {
namespace {

std::vector<const GgufArchitecture*> gguf_architectures() {
  std::vector<const GgufArchitecture*> all;
  for (const Family* family : families()) {
    if (family->gguf == nullptr) continue;
    for (const GgufArchitecture& one : family->gguf()) all.push_back(&one);
  }
  std::ranges::sort(all, {}, &GgufArchitecture::name);
  return all;
}

const GgufArchitecture* find_architecture(std::string_view name) {
  const std::vector<const GgufArchitecture*> all = gguf_architectures();
  const auto found = std::ranges::find(all, name, &GgufArchitecture::name);
  return found == all.end() ? nullptr : *found;
}

/// Files that hold something else than a language model.
void refuse_other_kinds(const GgufFiles& files, std::string_view architecture) {
  const std::string_view type = files.metadata().text("general.type").value_or("model");
  if (type == "mmproj" || architecture == "clip") {
    refuse_gguf(files,
                "it is the vision or sound part of a model; give the file of the text model");
  }
  if (type == "adapter") {
    refuse_gguf(
        files,
        "it is an adapter (LoRA), which is not read; merge it into its model and convert that");
  }
  if (type == "imatrix") {
    refuse_gguf(files,
                "it is an importance matrix, which serves to quantise models; give the model");
  }
  const std::vector<const GgufTensor*> tensors = files.tensors();
  if (tensors.empty())
    refuse_gguf(files, "it has a vocabulary and no weights; give the model's file");
  const bool is_draft =
      architecture == "eagle3" || architecture == "dflash" || architecture.ends_with("-assistant");
  const bool has_layers = std::any_of(tensors.begin(), tensors.end(), [](const GgufTensor* tensor) {
    return tensor->name.starts_with("blk.0.");
  });
  if (is_draft || !has_layers) {
    refuse_gguf(files,
                "it only drafts for another model (EAGLE-3, DFlash, MTP), which is not read from "
                "GGUF files; --spec ngram drafts without one, --draft-model takes a whole small "
                "model");
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
  const GgufArchitecture* const known = find_architecture(*architecture);
  if (known == nullptr) {
    std::vector<std::string_view> names;
    for (const GgufArchitecture* one : gguf_architectures()) names.push_back(one->name);
    refuse_gguf(
        files,
        fmt::format("the architecture {} is not read from GGUF files, of which {} are; if hyb "
                    "has the model's family, give the folder of its safetensors",
                    quote_name(*architecture), fmt::join(names, ", ")));
  }
  GgufConfig config = known->config(GgufKeys(files, *architecture));
  config.set(gguf_key, std::string(*architecture).c_str());
  return Config::from_text(config.text(), files.paths().front().string());
}

const Family& gguf_family(const Config& config) {
  const GgufArchitecture* const known = find_architecture(config.s(gguf_key));
  if (known == nullptr) config.fail(gguf_key, "it is not known");
  return known->family;
}

}  // namespace hyb::models
