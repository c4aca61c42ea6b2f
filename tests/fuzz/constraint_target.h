#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/text/unicode.h"
#include "tests/core/constraint/answers.h"

namespace hyb::testing {

/// The grammar that an input describes: its first byte names the form.
inline std::optional<Grammar> fuzzed_grammar(std::string_view input) {
  const std::string_view text = input.substr(1);
  if (input[0] == 's')
    return Grammar::from_json_schema(parse_json(text, "fuzz", {.bytes_max = 4096}), "fuzz");
  if (input[0] == 'r') return Grammar::from_regex(text, "fuzz");
  if (input[0] == 'g') return Grammar::from_gbnf(text, "fuzz");
  return std::nullopt;
}

/// A grammar and some tokens that it allows: right, or refused by an Error. False: an answer gets
/// stuck, a token of the mask is refused, or a whole answer is not UTF-8, or not JSON by a schema.
inline bool try_constraint(std::string_view input) {
  static const VocabularyTrie vocabulary =
      byte_vocabulary({"\":", "\",\"", "},{", "[[", "12", "text", "\xC3", "\xA9\"", "\\u00"});
  if (input.empty()) return true;
  try {
    const std::optional<Grammar> grammar = fuzzed_grammar(input);
    if (!grammar) return true;
    Constraint constraint(*grammar, vocabulary, {std::size_t{1} << 20, std::size_t{1} << 16});
    GrammarMatcher matcher(constraint);
    std::size_t random = input.size();
    std::string answer;
    for (int step = 0; step < 24 && !matcher.has_ended(); ++step) {
      const auto view = matcher.mask();
      std::vector<TokenId> allowed;
      for (std::int32_t i = 0; i < vocabulary.size(); ++i) {
        if (view[static_cast<std::size_t>(i) / 32] >> (i % 32) & 1U) allowed.push_back(TokenId{i});
      }
      random = random * 31 + static_cast<unsigned char>(input[random % input.size()]);
      if (allowed.empty()) return false;
      const TokenId token = allowed[random % allowed.size()];
      if (!matcher.accept(token)) return false;
      if (!matcher.has_ended()) answer += vocabulary.bytes(token);
    }
    if (matcher.has_ended())
      return is_well_formed(answer) && (input[0] != 's' || Json::accept(answer));
  } catch (const Error& error) {
    // parse_json() has its own; other kinds would be faults of the engine.
    return error.kind() == ErrorKind::usage || error.kind() == ErrorKind::model;
  }
  return true;
}

}  // namespace hyb::testing
