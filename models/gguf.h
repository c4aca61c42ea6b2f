#pragma once

#include <string>

#include "core/io/gguf.h"
#include "models/config.h"
#include "models/families.h"

namespace hyb::models {

/// The key of a config.json that gguf_config() wrote: the architecture of the file.
inline constexpr const char* gguf_key = "gguf_architecture";

/// Makes the config.json of the model in a GGUF file, so that families and all their checks serve.
/// Throws Error(model) that names the file and what to do: an architecture that hyb has no family
/// for; files that are no language model (vision parts, adapters, importance matrices, vocabularies
/// alone, drafts); a key that is missing.
Config gguf_config(const GgufFiles& files);

/// The family of a config that gguf_config() wrote: its tensors have GGUF's names, and its plan
/// knows what llama.cpp's converter did to them: rows of q and k in the order of pairs of
/// neighbours, norms with 1 added.
const Family& gguf_family(const Config& config);

}  // namespace hyb::models
