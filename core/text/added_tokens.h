#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/ids.h"
#include "core/text/guarded_text.h"
#include "core/text/tokenizer_json.h"
#include "core/text/vocabulary.h"

namespace hyb {

/// A map from byte strings to numbers that is traversed byte by byte.
class Trie {
 public:
  using Node = std::int32_t;
  static constexpr Node root = 0;
  static constexpr Node none = -1;

  Trie();

  /// Maps a non-empty `key` to a value >= 0; the first value of a key is kept.
  void add(std::string_view key, std::int32_t value);

  Node next(Node node, char byte) const;
  std::int32_t value(Node node) const {
    return nodes_[static_cast<std::size_t>(node)].value;
  }  ///< -1: no key ends here

 private:
  struct Edge {
    unsigned char byte;
    Node node;
  };
  struct Place {
    std::int32_t value = -1;
    std::vector<Edge> edges;
  };

  std::array<Node, 256> first_;  // the root's edges: nearly every walk ends there
  std::vector<Place> nodes_;
};

/// The strictest guard under which an added token of this spelling may be recognised: closed for
/// plain text (not special, white space only: runs of spaces and newlines), thinking for what an
/// assistant message may contain (thinking and tool-call markers, and tokens that are not special
/// and name no turn or role), open for everything else.
Guard guard_allowing(std::string_view spelling, bool special);

/// The tokens that are matched by spelling before (`normalized`: after) normalisation, and never
/// produced by merges.
class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;

  /// Reads `added_tokens` of the file. A token that is also in `vocabulary`, the model's, must have
  /// the same id there. Throws Error(model).
  AddedTokens(const TokenizerFile& file, const Vocabulary& vocabulary, const Normalize& normalize);

  /// A stretch of text: one added token, or the text between two of them.
  struct Stretch {
    std::size_t begin;
    std::size_t end;
    std::optional<TokenId> token;
  };

  /// Cuts a text, raw or `normalized`, at the added tokens of that sort: leftmost longest match,
  /// only where the guard of every byte allows it.
  std::vector<Stretch> cut(const GuardedText& text, bool normalized) const;

  /// Ids and spellings of all added tokens.
  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool is_special(TokenId token) const;

  /// Returns whether the text of an answer omits it: it is special, no marker of an assistant
  /// message, and no begin or end of a message in a vocabulary of harmony (the format of gpt-oss).
  bool is_omitted(TokenId token) const;

  /// Returns what a token decodes to: its spelling, normalised if it is matched after normalisation
  /// (as in Hugging Face tokenizers since 0.21).
  std::string_view text_of(TokenId token) const;

 private:
  struct Rules {
    TokenId token;
    bool single_word = false;
    bool strip_left = false;
    bool strip_right = false;
    bool normalized = false;
    bool special = false;
    bool bounds_message = false;  // of harmony
    Guard guard = Guard::open;    // the strictest under which it is recognised
    std::string text;             // what it is matched by
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
  Trie raw_;         // indices into rules_ by spelling
  Trie normalized_;  // the same by normalised spelling
};

}  // namespace hyb
