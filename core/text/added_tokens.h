#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/ids.h"
#include "core/text/guarded_text.h"
#include "core/text/tokenizer_json.h"
#include "core/text/trie.h"
#include "core/text/vocabulary.h"

namespace hyb {

/// The tokens that are found by their spelling before (normalized: after) normalisation, and never
/// by merges.
class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;

  /// Reads `added_tokens` of the file. `vocabulary` is the model's: a token that it has as well
  /// needs the same id there. Throws Error(model).
  AddedTokens(const TokenizerFile& file, const Vocabulary& vocabulary, const Normalize& normalize);

  /// A stretch of a text: one added token, or what lies between them.
  struct Stretch {
    std::size_t begin;
    std::size_t end;
    std::optional<TokenId> token;
  };

  /// Cuts a text, as written or `normalized`, at the added tokens of that sort: from left to right,
  /// of several that begin at one place the longest, and only where every byte's guard allows it.
  std::vector<Stretch> cut(const GuardedText& text, bool normalized) const;

  /// Ids and spellings of all of them.
  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool is_special(TokenId token) const;

  /// Whether an answer's text goes without it: it is special and no marker of an assistant's turn.
  bool is_left_out(TokenId token) const;

  /// What a token decodes to: its spelling, as normalised where it is found so. As Hugging Face has
  /// it since 0.21: a text with such tokens comes back the way other words do.
  std::string_view text_of(TokenId token) const;

 private:
  struct Rules {
    TokenId token;
    bool single_word = false;
    bool strip_left = false;
    bool strip_right = false;
    bool normalized = false;
    bool special = false;
    Guard guard = Guard::open;  // the strictest under which it may be found
    std::string text;           // what it is found by
  };
  struct Match {
    std::size_t end;
    const Rules* rules;
  };

  void read(const Json& json, const std::string& where, const Vocabulary& vocabulary);
  std::optional<Match> longest(const GuardedText& text, std::size_t begin, const Trie& trie) const;

  Vocabulary vocabulary_;
  std::vector<Rules> rules_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  Trie written_;     // indices into rules_ by spelling
  Trie normalized_;  // the same by normalised spelling
};

}  // namespace hyb
