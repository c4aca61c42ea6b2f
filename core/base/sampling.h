#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// The numbers by which a token is drawn. The defaults change nothing: greedy over the raw logits.
/// They act in this order: penalties (then biases are added), top_n_sigma, temperature, top_k,
/// top_p, min_p.
/// Trivially copyable, so that workers and cards get them as they are.
struct SamplingNumbers {
  float temperature = 0.0F;  ///< below 1e-5: the first maximum is the answer, no other is drawn
  std::int32_t top_k = 0;    ///< the likeliest, of equals the lower ids; 0 or -1: all
  float top_p = 1.0F;        ///< the fewest likeliest tokens that reach this probability
  float min_p = 0.0F;        ///< at least this share of the likeliest's probability
  float repetition_penalty = 1.0F;  ///< divides (when negative: multiplies) logits of tokens seen
  float frequency_penalty = 0.0F;   ///< per occurrence among the generated tokens
  float presence_penalty = 0.0F;    ///< once per generated token
  /// Logits of at least max - n * deviation stay: the standard deviation of the row's logits above
  /// minus infinity, over their number; 0 or less: all. The temperature does not change which.
  float top_n_sigma = 0.0F;
  std::int32_t logprobs = -1;  ///< -1: none; 0: of the drawn token; n: and of the n most likely
  std::int32_t unused = 0;     ///< so that messages have no undefined bytes
  std::uint64_t seed = 0;      ///< of the draws, which depend on it and on SampleRow::draw alone
};
static_assert(std::is_trivially_copyable_v<SamplingNumbers> && sizeof(SamplingNumbers) == 48);

/// Added to one token's logit.
struct LogitBias {
  TokenId token;
  float bias;
};

/// Says how the next token is drawn.
struct SamplingParams : SamplingNumbers {
  std::vector<LogitBias> bias = {};  ///< names a token once
  std::vector<TokenId> banned = {};  ///< never drawn
};

/// Says what a number of a request may be.
struct ParameterRange {
  double least, most;
  bool excludes_least = false;

  /// NaN is in no range.
  bool has(double value) const {
    return (excludes_least ? value > least : value >= least) && value <= most;
  }

  /// "0 to 100", "above 0 and at most 1".
  std::string text() const;
};

inline constexpr std::int32_t logprobs_max = 20;

/// Limits of weights are far outside of useful values, and far inside of what keeps every product
/// finite.
namespace ranges {
inline constexpr double whole_max = std::numeric_limits<std::int32_t>::max();
inline constexpr ParameterRange max_tokens = {1, whole_max};
inline constexpr ParameterRange logprobs = {0, logprobs_max};
inline constexpr ParameterRange logit_bias = {-1000, 1000};
inline constexpr ParameterRange seed = {0, 0x1p64};
}  // namespace ranges

/// Seeds fill 64 bits, which is more than a range of numbers in doubles can say.
inline constexpr const char* seed_range_text = "0 to 18446744073709551615";

using ParameterValue = std::variant<float, std::int32_t, std::uint64_t>;

/// Says whether generation_config.json sets a parameter: only where it asks for sampling, or
/// always.
enum class InModelFile : std::uint8_t { no, where_sampled, always };

/// One number that requests may set.
struct Parameter {
  std::string_view name;  ///< in bodies, /set and files; dashes make the flag of it
  std::variant<float SamplingNumbers::*, std::int32_t SamplingNumbers::*,
               std::uint64_t SamplingNumbers::*>
      member;
  ParameterRange range;
  InModelFile in_model_file;
  const char* help;
  const char* more_flags = "";  ///< other spellings of the flag, each after a comma

  ParameterValue value(const SamplingNumbers& numbers) const {
    return std::visit([&](auto own) -> ParameterValue { return numbers.*own; }, member);
  }
  /// `value` is of the member's type.
  void set(SamplingNumbers& numbers, const ParameterValue& value) const {
    std::visit([&]<typename T>(T SamplingNumbers::*own) { numbers.*own = std::get<T>(value); },
               member);
  }
};

/// All there are, in the order of help and listings. Command lines, bodies of requests, /set,
/// generation_config.json and check() go by this table.
inline constexpr auto sampling_parameters = std::to_array<Parameter>({
    {"temperature",
     &SamplingNumbers::temperature,
     {0, 100},
     InModelFile::where_sampled,
     "how freely tokens are drawn; 0: always the likeliest",
     ",--temp"},
    {"top_k",
     &SamplingNumbers::top_k,
     {-1, ranges::whole_max},
     InModelFile::where_sampled,
     "draw from the k likeliest tokens; 0 or -1: from all"},
    {"top_p",
     &SamplingNumbers::top_p,
     {0, 1, true},
     InModelFile::where_sampled,
     "draw from the likeliest tokens that together reach this probability"},
    {"min_p",
     &SamplingNumbers::min_p,
     {0, 1},
     InModelFile::where_sampled,
     "drop tokens that are less likely than min-p times the likeliest"},
    {"top_n_sigma",
     &SamplingNumbers::top_n_sigma,
     {-1, 100},
     InModelFile::where_sampled,
     "drop logits more than n standard deviations below the largest; 0 or less: off"},
    {"repetition_penalty",
     &SamplingNumbers::repetition_penalty,
     {0, 100, true},
     InModelFile::always,
     "divide the logits of tokens seen before by this",
     ",--repeat-penalty"},
    {"frequency_penalty",
     &SamplingNumbers::frequency_penalty,
     {-100, 100},
     InModelFile::always,
     "subtract this from a token's logit for each time it is in the answer"},
    {"presence_penalty",
     &SamplingNumbers::presence_penalty,
     {-100, 100},
     InModelFile::always,
     "subtract this from a token's logit once it is in the answer"},
    {"seed", &SamplingNumbers::seed, ranges::seed, InModelFile::no, "seed of the random draws",
     ",-s"},
});

/// Null: there is none of this name.
constexpr const Parameter* find_parameter(std::string_view name) {
  const auto found = std::ranges::find(sampling_parameters, name, &Parameter::name);
  return found == sampling_parameters.end() ? nullptr : &*found;
}

/// Throws Error(usage) naming the parameter, its range and the value. `vocab` bounds token ids.
void check(const SamplingParams& params, std::int32_t vocab);
/// The same, but for biases that name a token twice: cheap enough for every step.
void check_values(const SamplingParams& params, std::int32_t vocab);

/// Returns whether the tokens drawn so far change what is drawn next.
inline bool has_penalties(const SamplingNumbers& numbers) {
  return numbers.repetition_penalty != 1.0F || numbers.frequency_penalty != 0.0F ||
         numbers.presence_penalty != 0.0F;
}

/// One row of logits, from which a token is drawn.
struct SampleRow {
  std::int32_t token = 0;  ///< in a span of a step: the logits after this one of its tokens
  const SamplingParams* params;
  std::uint64_t draw = 0;  ///< counts the tokens drawn so far in this sequence: the random counter
  std::span<const TokenId> history = {};  ///< prompt and generated tokens, for the penalties
  std::int32_t prompt_tokens = 0;  ///< number of tokens at the start of history that are the prompt
  /// A bit per token, the lowest of each word first, mask_words() of them: those that may be drawn.
  /// Empty: all.
  std::span<const std::uint32_t> mask = {};

  /// Returns the row of a later draw of the same sequence, whose mask is not known.
  SampleRow later(std::uint64_t draws) const {
    SampleRow row = *this;
    row.draw += draws;
    if (draws > 0) row.mask = {};
    return row;
  }
};

/// Counts the words of a mask over `vocab` tokens.
constexpr std::size_t mask_words(std::int32_t vocab) {
  return (static_cast<std::size_t>(vocab) + 31) / 32;
}

struct TokenLogprob {
  TokenId token;
  float logprob;
};

/// The likeliest tokens of a row, most likely first. A list of bounded length, which a card writes
/// in place.
struct TopLogprobs {
  std::array<TokenLogprob, logprobs_max> tokens = {};
  std::int32_t count = 0;

  constexpr TopLogprobs() = default;
  explicit TopLogprobs(std::span<const TokenLogprob> list) {
    for (const TokenLogprob& token : list) push_back(token);
  }
  TopLogprobs(std::initializer_list<TokenLogprob> list)
      : TopLogprobs(std::span(list.begin(), list.size())) {}

  void push_back(TokenLogprob token) { tokens[static_cast<std::size_t>(count++)] = token; }
  std::size_t size() const { return static_cast<std::size_t>(count); }
  const TokenLogprob* begin() const { return tokens.data(); }
  const TokenLogprob* end() const { return begin() + count; }
  const TokenLogprob& operator[](std::size_t i) const { return tokens[i]; }
};

struct SampledToken {
  TokenId token{};
  bool finite = true;  ///< false: the logits held a NaN, or left no token; the token means nothing
  float logprob = 0.0F;  ///< by the raw logits, as those of `top` are: before penalties and biases
  TopLogprobs top = {};
};
static_assert(std::is_trivially_copyable_v<SampledToken>);

}  // namespace hyb
