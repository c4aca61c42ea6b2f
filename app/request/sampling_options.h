#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/request/answer_rule.h"
#include "core/base/json.h"
#include "core/base/sampling.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hyb::app {

/// Options that the command line, or /set of a chat, gives; the others come from the model's
/// generation_config.json, then from the built-in defaults.
struct GenerationOptions {
  std::map<std::string_view, ParameterValue> parameters;  ///< those given, by the table's names
  std::optional<std::int32_t> max_tokens;
  std::vector<std::string> logit_bias;  ///< "ID=BIAS"
  std::vector<std::string> stop;
  bool ignore_eos = false;
  RuleFlags rule;
};

/// Adds -n/--max-tokens, --temperature, --top-k, ... The options outlive `cli`.
void add_generation_options(CLI::App& cli, GenerationOptions& options);

/// Flags over generation_config.json over built-in (greedy unless the model asks for sampling).
/// Throws Error(model) where a value of the file that no flag overrides is not a number or out of
/// range, Error(usage) for a malformed --logit-bias.
SamplingParams sampling_of(const GenerationOptions& options, const Json& generation_config);

}  // namespace hyb::app
