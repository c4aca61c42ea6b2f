#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/model_folder.h"

namespace hyb {

/// A model's GGUF file; of a split one the first part.
struct StoredGguf {
  std::string name;            ///< by which find_gguf() finds it
  std::filesystem::path file;  ///< empty with a trouble
  std::string note = {};       ///< what its store says of it that is not obeyed; empty: nothing
  std::string trouble = {};    ///< why it can't be read; empty: it can
  std::string hub_name = {};   ///< of the model in the Hugging Face cache that it is; empty: none
};

/// The GGUF file that `model` names, or nothing where it names none; no network access:
///
///   FILE                            whose first bytes or name say GGUF, also a part of a split one
///   FOLDER                          with one model's GGUF file and no safetensors
///   [hf.co/]org/name[@revision][:TAG]
///                                   in the Hugging Face cache, LM Studio's folders, llama.cpp's
///                                   cache: the file whose path has TAG between two of '-' '.' '/'
///                                   '_', ignoring case, best at the end of its name; without one
///                                   the only file, Q4_K_M or Q8_0
///   [hf.co/|HOST/][NAMESPACE/]MODEL[:TAG]
///                                   in ollama's store; the tag is latest
///   NAME.gguf                       in LM Studio's folders and llama.cpp's cache
///
/// What exists as a path is never looked up as a name, and without a TAG a snapshot in the Hugging
/// Face cache that has safetensors is no GGUF file, whatever other stores have. Parts of vision
/// (mmproj), importance matrices and drafts beside a model are passed over. Throws Error(model):
/// several files fit, or none has the TAG (it lists those that are there); a model of ollama's that
/// is no GGUF file or not complete.
std::optional<StoredGguf> find_gguf(std::string_view model, const HubEnvironment& environment);

/// Returns where find_gguf() looks besides the Hugging Face cache; empty: `model` has no form of a
/// name.
std::vector<std::string> gguf_places(std::string_view model, const HubEnvironment& environment);

/// The models in those stores, each once, by store and name: the shortest that finds the very file,
/// else its path.
std::vector<StoredGguf> stored_ggufs(const HubEnvironment& environment);

}  // namespace hyb
