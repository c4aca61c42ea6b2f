#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/constraint/expression.h"
#include "core/constraint/vocabulary_trie.h"

namespace hyb {

/// Says what an answer must be, as rules over bytes: an automaton whose edges are ranges of bytes
/// or calls of rules. Immutable; knows no vocabulary. Edges lead to where the end of the rule is
/// reached. All makers throw Error(usage) that begins with `source` for what is damaged, not
/// supported, too large, left-recursive, or allows no text.
class Grammar {
 public:
  /// JSON that a schema (draft 2020-12) allows; see the README for what is enforced and how it is
  /// spelled. A keyword that is not enforced is an error that names it.
  static Grammar from_json_schema(const Json& schema, const std::string& source);
  /// One of the alternatives: lists of parts that follow one another. A part is an object: `text`,
  /// as it is, then a value, then the text `after`. The value is JSON that `schema` allows, one of
  /// the texts of `options`, or any bytes that do not hold the text `until`. The whole part may
  /// lack where `optional` is true. With `begin`, with which all alternatives begin, any number of
  /// them, and between them any bytes that do not hold it.
  static Grammar from_parts(const Json& alternatives, const std::string& source,
                            const std::string& begin = {});
  static Grammar json_object(const std::string& source);  ///< any JSON object
  /// Texts that match as a whole (regex.h).
  static Grammar from_regex(std::string_view regex, const std::string& source);
  static Grammar one_of(std::span<const std::string> texts, const std::string& source);
  /// A grammar file of llama.cpp, from the rule `root`; references to tokens are refused.
  static Grammar from_gbnf(std::string_view text, const std::string& source);

  struct Rule {
    std::string name;
    Expressions::Id body;
  };
  /// Says how the characters of expressions are spelled: as UTF-8, or that within JSON strings,
  /// where quotes, backslashes and control characters have the one shortest escape, and where any
  /// character will do, all have all escapes.
  enum class Spelling : std::uint8_t { utf8, json };
  /// The language of the last one of `rules`.
  Grammar(Expressions& expressions, const std::vector<Rule>& rules, Spelling spelling);

  /// Frames of calls that may be open at once. What nests deeper is not offered, and a rule is only
  /// called where it can end within this depth, so an answer never gets stuck.
  static constexpr int depth_max = 256;

  enum class Kind : std::uint8_t { range, call };
  struct Edge {
    std::int32_t from, to;
    std::uint32_t low, high;  ///< bytes of a range; a call: its rule, twice
    Kind kind;
  };
  std::int32_t start() const { return start_; }
  std::span<const Edge> edges(std::int32_t state) const {
    const std::size_t at = index(state);
    return std::span(edges_).subspan(first_[at], first_[at + 1] - first_[at]);
  }
  /// Start state of the rule that an edge calls.
  std::int32_t rule_start(const Edge& call) const { return starts_[call.low]; }
  bool is_end(std::int32_t state) const { return ends_[index(state)] != 0; }
  /// Only the end of the rule is left: a call that continues there needs no frame.
  bool is_tail(std::int32_t state) const { return tails_[index(state)] != 0; }
  /// Frames that the shortest way from the state to the end of its rule needs.
  int height(std::int32_t state) const { return heights_[index(state)]; }
  /// Any characters of words, or of text (VocabularyTrie), at most this many, can follow: at most
  /// `text_max`, and counted only where no state on the way has a height of more than
  /// `text_height`.
  int text(std::int32_t state, std::size_t kind) const { return texts_[index(state)][kind]; }
  static constexpr int text_max = 16, text_height = 8;
  /// Bytes of one class are on the same edges everywhere.
  std::uint8_t byte_class(std::uint8_t byte) const { return classes_[byte]; }
  int class_count() const { return class_count_; }
  std::size_t states() const { return ends_.size(); }
  const std::string& source() const { return source_; }

 private:
  static std::size_t index(std::int32_t state) { return static_cast<std::size_t>(state); }
  void sort_edges();
  template <typename Improve>
  void propagate(std::span<const Edge> edges, Improve&& improve) const;
  void find_heights();
  void find_texts(std::span<const Edge> texts, std::size_t kind);
  void find_classes();
  /// Rules that may be called before a byte is read; `work` counts what that took.
  std::vector<std::uint32_t> called_first(std::int32_t state,
                                          std::span<const std::uint8_t> may_be_empty,
                                          std::size_t& work) const;
  void check_left_recursion(std::span<const Rule> rules) const;

  std::string source_;
  std::int32_t start_ = 0;
  std::vector<Edge> edges_;  // by state
  std::vector<std::uint32_t> first_;
  std::vector<std::int32_t> starts_;
  std::vector<std::uint8_t> ends_, tails_;
  std::vector<std::array<std::uint8_t, VocabularyTrie::kinds>> texts_;
  std::vector<std::int32_t> heights_;
  std::array<std::uint8_t, 256> classes_{};
  int class_count_ = 0;
};

}  // namespace hyb
