#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/base/sampling.h"

namespace hyb::app {

struct GenerationOptions;

/// Defaults from generation_config.json, which flags override: sampling where do_sample is true,
/// else greedy; penalties; tokens that are never drawn; tokens that end an answer. Throws
/// Error(model) that names the key: for a value of the wrong kind or out of range, and for what
/// would change answers and is not supported, unless its value changes nothing. Other keys are
/// ignored, as those of config.json are: what an answer costs, beams' weights without beams,
/// max_length, which is of prompt and answer together, as --context is.
struct GenerationDefaults {
  SamplingParams sampling;
  std::optional<std::int32_t> max_tokens;
  std::vector<std::string> stop;
};
GenerationDefaults generation_defaults(const Json& config, const GenerationOptions& flags);

/// suppress_tokens, and bad_words_ids of single tokens, each once; those from `vocab` on are left
/// out, as no answer has them. Throws Error(model) as generation_defaults does.
std::vector<TokenId> banned_tokens(const Json& config, std::int32_t vocab);

}  // namespace hyb::app
