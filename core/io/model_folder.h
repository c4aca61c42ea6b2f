#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyb {

/// The environment variables that locate the Hugging Face cache and other programs' models. The app
/// fills it in: core reads no environment. Unset and empty mean the same.
struct HubEnvironment {
  std::optional<std::string> hf_hub_cache{};           ///< HF_HUB_CACHE
  std::optional<std::string> huggingface_hub_cache{};  ///< HUGGINGFACE_HUB_CACHE, its older name
  std::optional<std::string> hf_home{};                ///< HF_HOME
  std::optional<std::string> xdg_cache_home{};         ///< XDG_CACHE_HOME
  std::optional<std::string> home{};                   ///< HOME
  std::optional<std::string> ollama_models{};          ///< OLLAMA_MODELS
  std::optional<std::string> llama_cache{};            ///< LLAMA_CACHE
};

inline bool is_set(const std::optional<std::string>& variable) {
  return variable && !variable->empty();
}

/// Throws Error(model) 'model "NAME": text'.
[[noreturn]] void refuse_model(std::string_view model, const std::string& text);

/// Without the "hf.co/" or "huggingface.co/" before a model's name.
std::string_view without_hub_host(std::string_view model);

/// $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else
/// $XDG_CACHE_HOME/huggingface/hub, else
/// ~/.cache/huggingface/hub. Empty when nothing is set.
std::filesystem::path hub_folder(const HubEnvironment& environment);

/// A sentence about the adapter in `folder` and what to do about it: PEFT's adapter_config.json
/// with weights beside it, which transformers applies to a model of the same folder; empty: none.
std::string adapter_text(const std::filesystem::path& folder);

/// A sentence about weights in `path`, a file or a folder, in a format that is not read: pickles
/// (.bin, .pt), ONNX, GGUF files that find_gguf() passes over, or of an adapter alone; empty where
/// there are none or safetensors besides.
std::string other_format_text(const std::filesystem::path& path);

/// The names under which models of the Hugging Face cache are found, sorted: org/name for the
/// branch main, else org/name@revision for each branch, or without one for each commit. Empty where
/// there is no such folder.
std::vector<std::string> models_in_hub(const std::filesystem::path& hub);

/// The snapshot of `org/name[@revision]` in the Hugging Face cache; nullopt: it has no such model,
/// or the name is no such name. Throws as find_model_folder() where the revision is not there.
std::optional<std::filesystem::path> find_hub_snapshot(std::string_view model,
                                                       const HubEnvironment& environment);

/// The folder of a model, which holds a readable config.json: `model` is a folder, or
/// `org/name[@revision]` (also `name[@revision]`) in the Hugging Face cache; no network access.
/// The revision is a branch or tag (default main), a commit, or its first 7 or more digits.
/// Throws Error(model): no such folder, no such model or revision in the cache, an ambiguous commit
/// prefix, a link whose target was never downloaded.
std::filesystem::path find_model_folder(std::string_view model, const HubEnvironment& environment);

}  // namespace hyb
