#include "app/request/body_fields.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/sampling.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

/// Their values are read where they are used. The other fields that are obeyed are `parameters`.
const std::vector<std::string_view> obeyed_alone = words_of(
    "messages prompt model max_tokens max_completion_tokens n_predict stop stop_token_ids n "
    "logprobs top_logprobs logit_bias ignore_eos chat_template_kwargs tools tool_choice documents "
    "reasoning_effort enable_thinking thinking add_generation_prompt continue_final_message "
    "response_format structured_outputs guided_json guided_regex guided_choice guided_grammar "
    "json_schema grammar allowed_token_ids min_tokens");

/// They are about accounts and schedules, or qualify a field that is refused by itself.
const std::vector<std::string_view> harmless = words_of(
    "user metadata store service_tier stream stream_options safety_identifier prompt_cache_key "
    "prompt_cache_retention prediction priority request_id rid cache_salt cache_prompt id_slot "
    "api_key extra_headers timeout usage provider spaces_between_special_tokens repeat_last_n "
    "stream_reasoning guided_decoding_backend guided_whitespace_pattern dry_base "
    "dry_allowed_length dry_penalty_last_n dry_sequence_breakers xtc_threshold mirostat_tau "
    "mirostat_eta dynatemp_exponent");

struct NeutralValues {
  std::string_view name;
  std::string_view values;  ///< a JSON array of those that ask for what happens anyway
};

constexpr auto neutral = std::to_array<NeutralValues>({
    {"response_format", R"([{"type":"text"}])"},
    {"parallel_tool_calls", "[true]"},
    {"function_call", R"(["auto","none"])"},
    {"modalities", R"([["text"]])"},
    {"verbosity", R"(["medium"])"},
    {"best_of", "[1]"},
    {"echo", "[false]"},
    {"suffix", R"([""])"},
    {"min_tokens", "[0]"},
    {"bad_words", "[[]]"},
    {"functions", "[[]]"},
    {"use_beam_search", "[false]"},
    {"length_penalty", "[1]"},
    {"early_stopping", "[false]"},
    {"include_stop_str_in_output", "[false]"},
    {"skip_special_tokens", "[true]"},
    {"detokenize", "[true]"},
    {"return_logprob", "[false]"},
    {"safe_prompt", "[false]"},
    {"vllm_xargs", "[{}]"},
    {"kv_transfer_params", "[{}]"},
    {"extra_body", "[{}]"},
    {"penalize_nl", "[false]"},
    {"min_keep", "[0]"},
    {"t_max_predict_ms", "[0]"},
    {"tfs_z", "[1]"},
    {"return_tokens_as_token_ids", "[false]"},
    {"return_token_ids", "[false]"},
    {"include_reasoning", "[true]"},
    {"separate_reasoning", "[true]"},
    {"no_stop_trim", "[false]"},
    {"return_hidden_states", "[false]"},
    {"reasoning_format", R"(["auto","deepseek"])"},
    {"grammar", R"([""])"},
    {"repeat_penalty", "[1]"},
    {"typical_p", "[1]"},
    {"mirostat", "[0]"},
    {"dynatemp_range", "[0]"},
    {"xtc_probability", "[0]"},
    {"dry_multiplier", "[0]"},
    {"n_probs", "[0]"},
    {"n_keep", "[0]"},
    {"post_sampling_probs", "[false]"},
    {"return_tokens", "[false]"},
    {"timings_per_token", "[false]"},
});

/// Parameters of other servers that are not obeyed with any value.
const std::vector<std::string_view> refused = words_of(
    "audio chat_template custom_logit_processor custom_params ebnf images input instructions "
    "logits_processors lora lora_path mm_processor_kwargs prompt_logprobs reasoning regex samplers "
    "structural_tag suppress_tokens system top_a truncate_prompt_tokens web_search_options");

const std::vector<std::string_view> obeyed = [] {
  std::vector<std::string_view> names = obeyed_alone;
  std::ranges::transform(sampling_parameters, std::back_inserter(names), &Parameter::name);
  return names;
}();

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const NeutralValues* neutral_values(std::string_view name) {
  const auto found = std::find_if(neutral.begin(), neutral.end(),
                                  [&](const NeutralValues& known) { return known.name == name; });
  return found == neutral.end() ? nullptr : &*found;
}

/// Fields with the content of a request; columns of data sets often have similar names.
const std::vector<std::string_view> data = words_of("messages prompt model tools documents");

std::string nearest_obeyed(std::string_view name) {
  const std::vector<std::string> known(obeyed.begin(), obeyed.end());
  return std::string(nearest_name(name, known));
}

[[noreturn]] void refuse(const std::string& name, const Json& value) {
  if (const NeutralValues* known = neutral_values(name)) {
    throw Error(ErrorKind::usage, fmt::format("{}: only {} is obeyed, got {}", name,
                                              known->values.substr(1, known->values.size() - 2),
                                              excerpt(to_text(value))));
  }
  const std::string near = nearest_obeyed(name);
  throw Error(ErrorKind::usage,
              fmt::format("{0}: is not obeyed, and an answer without it may be another; leave it "
                          "out, as batch --ignore-fields {0} does{1}",
                          excerpt(name), near.empty() ? "" : fmt::format(", or say {}", near)));
}

}  // namespace

bool asks_nothing(const Json& body, const std::string& name) {
  Json value = body.at(name);
  if (value.is_null() || is_in(harmless, name)) return true;
  if (value.is_array() && value.empty()) return true;
  if (name == "best_of") return value == 1 || (body.contains("n") && value == body["n"]);
  if (name == "add_special_tokens") return value == !body.contains("messages");
  if (name == "parallel_tool_calls" && !body.contains("tools")) return true;
  const NeutralValues* known = neutral_values(name);
  if (known == nullptr) return false;
  if (value.is_object()) {  // clients write null for what was not given
    for (const auto& [member, given] : body.at(name).items()) {
      if (given.is_null()) value.erase(member);
    }
  }
  const Json values = parse_json(known->values, name);
  return std::find(values.begin(), values.end(), value) != values.end();
}

void check_fields(const Json& body) {
  for (const auto& [name, value] : body.items()) {
    if (!is_in(obeyed, name) && !asks_nothing(body, name)) refuse(name, value);
  }
}

bool may_be_parameter(std::string_view name) {
  if (is_in(obeyed, name) || is_in(harmless, name) || is_in(refused, name) ||
      neutral_values(name) != nullptr) {
    return true;
  }
  constexpr std::size_t letters_min = 6;  // of a word that one letter does not make another
  return name.size() >= letters_min && std::ranges::any_of(obeyed, [&](std::string_view known) {
           return !is_in(data, known) && edit_distance(name, known) <= 1;
         });
}

}  // namespace hyb::app
