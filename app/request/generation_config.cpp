#include "app/request/generation_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/request/sampling_options.h"
#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

[[noreturn]] void fail_file(const std::string& text) {
  throw Error(ErrorKind::model, "generation_config.json: " + text);
}

std::string excerpt_of(const Json& value) { return excerpt(to_text(value)); }

[[noreturn]] void fail_file(std::string_view key, const char* rule, const Json& value) {
  fail_file(fmt::format("{} must be {}, is {}", key, rule, excerpt_of(value)));
}

/// A key's value as a number, where it has one.
template <typename T>
void take_number(const Json& config, std::string_view key, T& field) {
  const Json* const value = member_of(config, key);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  const bool fits = std::is_floating_point_v<T>
                        ? std::isfinite(static_cast<float>(number))
                        : std::floor(number) == number && std::abs(number) <= 0x7fffffff;
  if (!fits) fail_file(key, std::is_floating_point_v<T> ? "a number" : "a whole number", *value);
  field = static_cast<T>(number);
}

bool wants_sampling(const Json& config) {
  const Json* const value = member_of(config, "do_sample");
  if (value == nullptr) return false;
  if (!value->is_boolean()) fail_file("do_sample", "true or false", *value);
  return value->get<bool>();
}

/// A key that would change answers, and the value of it that changes none; null, false and what is
/// empty change none of any.
struct Unsupported {
  const char* key;
  double neutral;
};

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();  ///< is neutral

constexpr std::array unsupported = {
    Unsupported{"min_length", 0},
    Unsupported{"min_new_tokens", 0},
    Unsupported{"num_beams", 1},
    Unsupported{"num_beam_groups", 1},
    Unsupported{"diversity_penalty", 0},
    Unsupported{"num_return_sequences", 1},
    Unsupported{"penalty_alpha", 0},
    Unsupported{"encoder_repetition_penalty", 1},
    Unsupported{"no_repeat_ngram_size", 0},
    Unsupported{"encoder_no_repeat_ngram_size", 0},
    Unsupported{"guidance_scale", 1},
    Unsupported{"typical_p", 1},
    Unsupported{"epsilon_cutoff", 0},
    Unsupported{"eta_cutoff", 0},
    Unsupported{"top_h", no_number},
    Unsupported{"max_time", no_number},
    Unsupported{"begin_suppress_tokens", no_number},
    Unsupported{"forced_bos_token_id", no_number},
    Unsupported{"forced_eos_token_id", no_number},
    Unsupported{"forced_decoder_ids", no_number},
    Unsupported{"force_words_ids", no_number},
    Unsupported{"constraints", no_number},
    Unsupported{"sequence_bias", no_number},
    Unsupported{"exponential_decay_length_penalty", no_number},
    Unsupported{"watermarking_config", no_number},
    Unsupported{"token_healing", no_number},
    Unsupported{"dola_layers", no_number},
};

[[noreturn]] void refuse_key(const char* key, const Json& value) {
  fail_file(
      fmt::format("{} {} is not supported, and answers would be others without it; remove the key "
                  "to run the model all the same",
                  key, excerpt_of(value)));
}

void refuse_unsupported(const Json& config) {
  for (const Unsupported& each : unsupported) {
    const Json* const value = member_of(config, each.key);
    if (value == nullptr) continue;
    const bool is_empty =
        (value->is_boolean() && !value->get<bool>()) || (value->is_structured() && value->empty());
    const bool is_neutral = value->is_number() && value->get<double>() == each.neutral;
    if (!is_empty && !is_neutral) refuse_key(each.key, *value);
  }
}

std::vector<std::string> stop_texts(const Json& config) {
  constexpr const char* key = "stop_strings";
  const Json* const value = member_of(config, key);
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      fail_file(key, "a text or a list of texts", *value);
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

}  // namespace

GenerationDefaults generation_defaults(const Json& config, const GenerationOptions& flags) {
  GenerationDefaults defaults;
  SamplingParams& sampling = defaults.sampling;
  const bool samples = wants_sampling(config);
  if (samples) sampling.temperature = 1.0F;
  for (const Parameter& parameter : sampling_parameters) {
    const bool is_read = parameter.in_model_file == InModelFile::always ||
                         (parameter.in_model_file == InModelFile::where_sampled && samples);
    if (!is_read || flags.parameters.contains(parameter.name)) continue;
    std::visit([&](auto member) { take_number(config, parameter.name, sampling.*member); },
               parameter.member);
  }
  try {
    check(sampling, std::numeric_limits<std::int32_t>::max());
  } catch (const Error& error) {
    fail_file(fmt::format("{}; fix the file or override it with the flag", error.what()));
  }
  refuse_unsupported(config);
  constexpr const char* length_key = "max_new_tokens";
  if (!flags.max_tokens && member_of(config, length_key) != nullptr) {
    take_number(config, length_key, defaults.max_tokens.emplace());
    if (*defaults.max_tokens < 1) fail_file(length_key, "1 or more", config.at(length_key));
  }
  if (flags.stop.empty()) defaults.stop = stop_texts(config);
  return defaults;
}

std::vector<TokenId> banned_tokens(const Json& config, std::int32_t vocab) {
  std::vector<TokenId> banned;
  const auto add = [&](const char* key, const Json& id) {
    if (!id.is_number_unsigned()) fail_file(key, "token ids", config.at(key));
    const auto number = id.get<std::uint64_t>();
    if (number >= static_cast<std::uint64_t>(vocab)) return;
    banned.push_back(TokenId{static_cast<std::int32_t>(number)});
  };
  if (const Json* const ids = member_of(config, "suppress_tokens")) {
    if (!ids->is_array()) fail_file("suppress_tokens", "a list of token ids", *ids);
    for (const Json& id : *ids) add("suppress_tokens", id);
  }
  if (const Json* const words = member_of(config, "bad_words_ids")) {
    if (!words->is_array()) fail_file("bad_words_ids", "a list of lists of token ids", *words);
    for (const Json& word : *words) {
      if (!word.is_array() || word.size() != 1) refuse_key("bad_words_ids", *words);
      add("bad_words_ids", word[0]);
    }
  }
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  if (std::ssize(banned) == vocab) fail_file("suppress_tokens leaves no token");
  return banned;
}

}  // namespace hyb::app
