// Answers through constraints, for measurements and for the cases of tests/core/constraint.
//
//   mask_lines [MODEL.gguf] < CASES
//     Every line is {"schema": ...}, {"regex": TEXT} or {"gbnf": TEXT}, with "texts": [TEXT...].
//     Writes one line each: {"allowed": [BOOL...]}, or {"error": ...}. With a model also the times
//     of the compilation and of the mask before each of its tokens, in microseconds of processor
//     time, and the tokens: {"compile": ..., "masks": [...], "tokens": [...]}; constraints are made
//     for each line. A line with "draws": COUNT also gets as many answers that are drawn from the
//     masks alone, rather what ends something: {"drawn": [TEXT or, where it did not end, null]}.

#include <time.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "core/base/error.h"
#include "core/constraint/constraint.h"
#include "core/io/gguf.h"
#include "core/text/tokenizer.h"

using namespace hyb;

namespace {

double microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

VocabularyTrie vocabulary_of(const Tokenizer* tokenizer) {
  std::vector<std::string> bytes;
  const std::int32_t size = tokenizer ? tokenizer->size() : 256;
  for (std::int32_t i = 0; i < size; ++i) {
    const TokenId token{i};
    if (!tokenizer)
      bytes.push_back(std::string(1, static_cast<char>(i)));
    else
      bytes.push_back(tokenizer->is_special(token) ? "" : tokenizer->bytes_of(token));
  }
  bytes.push_back("");
  const TokenId end{size};
  return VocabularyTrie(std::move(bytes), std::span(&end, 1));
}

Grammar grammar_of(const Json& row) {
  if (row.contains("regex")) return Grammar::from_regex(row["regex"].get<std::string>(), "regex");
  if (row.contains("gbnf")) return Grammar::from_gbnf(row["gbnf"].get<std::string>(), "gbnf");
  return Grammar::from_json_schema(row["schema"], "schema");
}

/// An answer drawn from the masks; null: it takes more than `tokens_max` tokens.
Json drawn_answer(Constraint& constraint, const VocabularyTrie& vocabulary, std::mt19937& random) {
  static constexpr int tokens_max = 400;
  static constexpr std::string_view ends = "\"]}";
  GrammarMatcher matcher(constraint);
  std::string text;
  for (int i = 0; i < tokens_max && !matcher.has_ended(); ++i) {
    const auto mask = matcher.mask();
    std::vector<TokenId> allowed, ending;
    for (std::int32_t token = 0; token < vocabulary.size(); ++token) {
      if (!(mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U)) continue;
      const std::string_view bytes = vocabulary.bytes(TokenId{token});
      allowed.push_back(TokenId{token});
      if (bytes.empty() || (bytes.size() == 1 && ends.find(bytes[0]) != ends.npos))
        ending.push_back(TokenId{token});
    }
    if (allowed.empty()) throw Error(ErrorKind::runtime, "an answer is stuck: " + text);
    const auto& from = ending.empty() || random() % 3 != 0 ? allowed : ending;
    const TokenId token = from[random() % from.size()];
    text += vocabulary.bytes(token);
    matcher.accept(token);
  }
  return matcher.has_ended() ? Json(text) : Json();
}

Json answer(const Json& row, const VocabularyTrie& vocabulary, const Tokenizer* tokenizer) {
  Json out;
  const double start = microseconds();
  const Grammar grammar = grammar_of(row);
  Constraint constraint(grammar, vocabulary);
  const double compiled = microseconds() - start;
  Json allowed = Json::array(), masks = Json::array(), ids = Json::array();
  std::mt19937 random(7);
  for (int i = row.value("draws", 0); i > 0; --i)
    out["drawn"].push_back(drawn_answer(constraint, vocabulary, random));
  for (const Json& text : row.value("texts", Json::array())) {
    GrammarMatcher matcher(constraint);
    const auto bytes = text.get<std::string>();
    std::vector<TokenId> tokens;
    if (tokenizer) {
      tokens = tokenizer->encode(bytes, {});
    } else {
      for (const char c : bytes) tokens.push_back(TokenId{static_cast<unsigned char>(c)});
    }
    for (const TokenId token : tokens) ids.push_back(static_cast<std::int32_t>(token));
    bool fits = true;
    for (std::size_t i = 0; i <= tokens.size() && fits; ++i) {
      const TokenId token = i < tokens.size() ? tokens[i] : vocabulary.ends()[0];
      const double before = microseconds();
      const auto mask = matcher.mask();
      masks.push_back(microseconds() - before);
      const auto at = static_cast<std::uint32_t>(token);
      fits = mask[at / 32] >> (at % 32) & 1U;
      if (fits) matcher.accept(token);
    }
    allowed.push_back(fits);
  }
  out["allowed"] = allowed;
  if (tokenizer) {
    out["compile"] = compiled;
    out["masks"] = masks;
    out["tokens"] = ids;
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::optional<Tokenizer> tokenizer;
    if (argc > 1) tokenizer = Tokenizer::from_gguf(GgufFiles(argv[1]).metadata());
    const double start = microseconds();
    const VocabularyTrie vocabulary = vocabulary_of(tokenizer ? &*tokenizer : nullptr);
    std::fprintf(stderr,
                 "vocabulary: %d tokens, %.1f ms, %zu nodes of words, %zu of text, %zu others\n",
                 vocabulary.size(), (microseconds() - start) / 1e3,
                 vocabulary.part(VocabularyTrie::word).nodes.size(),
                 vocabulary.part(VocabularyTrie::text).nodes.size(),
                 vocabulary.part(VocabularyTrie::other).nodes.size());
    for (std::string line; std::getline(std::cin, line);) {
      Json out;
      try {
        out = answer(parse_json(line, "line"), vocabulary, tokenizer ? &*tokenizer : nullptr);
      } catch (const Error& error) {
        out["error"] = error.what();
      }
      std::cout << to_text(out) << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
