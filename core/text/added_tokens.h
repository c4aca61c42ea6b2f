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

/// A set of byte strings, each with a number, to be walked byte by byte.
class Trie {
 public:
  using Node = std::int32_t;
  static constexpr Node root = 0;
  static constexpr Node none = -1;

  Trie();

  /// Gives `key`, which is not empty, the value >= 0; the first one given stays.
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

/// The strictest guard over which an added token of this spelling may still be found:
/// closed for plain text (not special, white space only: runs of spaces and newlines), thinking for
/// what an assistant turn from a file may hold (markers of thoughts and tool calls, and what is not
/// special and names no turn and no role), open for everything else.
Guard guard_allowing(std::string_view spelling, bool special);

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
