#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/constraint/constraint.h"

namespace hyb {

/// A vocabulary of all single bytes, some longer tokens after them, and an end (the last one).
inline VocabularyTrie byte_vocabulary(const std::vector<std::string>& longer = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), longer.begin(), longer.end());
  tokens.push_back("<end>");
  const TokenId end{static_cast<std::int32_t>(tokens.size()) - 1};
  return VocabularyTrie(std::move(tokens), std::span(&end, 1));
}

/// Whether a whole answer may be `text`.
inline bool allows(const Grammar& grammar, std::string_view text) {
  static const VocabularyTrie bytes = byte_vocabulary();
  Constraint constraint(grammar, bytes);
  GrammarMatcher matcher(constraint);
  return (text.empty() || matcher.accept_bytes(text)) && matcher.is_complete();
}

}  // namespace hyb
