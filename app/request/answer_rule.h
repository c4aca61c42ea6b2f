#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/engine/constraint_cache.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hyb::app {

/// Rules for an answer from the command line, of which at most one may be given.
struct RuleFlags {
  std::optional<std::string> json_schema = {};  ///< a file, or JSON
  bool json_object = false;
  std::optional<std::string> regex = {};
  std::vector<std::string> one_of = {};
  std::optional<std::string> grammar = {};  ///< a file
};

/// Adds --json-schema, --json-object, --regex, --one-of, --grammar. The flags outlive `cli`.
void add_rule_options(CLI::App& cli, RuleFlags& flags);

/// Nothing: none was given. Throws Error(usage) naming two that contradict, or one that is empty,
/// and Error(model) where a file can't be read.
std::optional<AnswerRule> rule_of(const RuleFlags& flags);

/// The same of a body, as OpenAI (response_format), vLLM (guided_*, structured_outputs) and
/// llama.cpp (grammar, json_schema) spell it.
std::optional<AnswerRule> rule_of(const Json& body);

}  // namespace hyb::app
