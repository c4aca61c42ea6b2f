#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/constraint/rule_graph.h"

namespace hyb {

/// What an answer must be, as rules over bytes: an automaton whose edges are ranges of bytes or
/// calls of rules. Immutable; knows no vocabulary. From every state the end of its rule is reached.
/// All makers throw Error(usage) that begins with `source` for what is damaged, not supported, too
/// large, left-recursive, or allows no text.
class Grammar {
 public:
  /// JSON that a schema (draft 2020-12) allows; see the README for what is enforced and how it is
  /// spelled. A keyword that is not enforced is an error that names it.
  static Grammar from_json_schema(const Json& schema, const std::string& source);
  static Grammar json_object(const std::string& source);  ///< any JSON object
  /// Texts that match as a whole (regex.h).
  static Grammar from_regex(std::string_view regex, const std::string& source);
  static Grammar one_of(std::span<const std::string> texts, const std::string& source);
  /// A grammar file of llama.cpp, from the rule `root`; references to tokens are refused.
  static Grammar from_gbnf(std::string_view text, const std::string& source);

  /// The language of a rule of a graph of UTF-8 bytes.
  Grammar(const RuleGraph& graph, int root);

  /// Frames of calls that may be open at once. What nests deeper is not offered, and a rule is only
  /// called where it can end within this depth, so an answer never gets stuck.
  static constexpr int depth_max = 256;

  using Edge = RuleGraph::Edge;
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
  /// Any text (VocabularyTrie) of at most this many characters can follow; at most `text_max`, and
  /// counted only where no state on the way has a height of more than `text_height`.
  int text(std::int32_t state) const { return texts_[index(state)]; }
  static constexpr int text_max = 16, text_height = 8;
  /// Bytes of one class are on the same edges everywhere.
  std::uint8_t byte_class(std::uint8_t byte) const { return classes_[byte]; }
  int class_count() const { return class_count_; }
  std::size_t states() const { return ends_.size(); }
  const std::string& source() const { return source_; }

 private:
  static std::size_t index(std::int32_t state) { return static_cast<std::size_t>(state); }
  void sort_edges(std::vector<Edge> edges);
  void find_heights(const RuleGraph& graph);
  void find_tails();
  void find_classes();
  void find_texts();
  void check_left_recursion(const RuleGraph& graph) const;

  std::string source_;
  std::int32_t start_ = 0;
  std::vector<Edge> edges_;  // by state
  std::vector<std::uint32_t> first_;
  std::vector<std::int32_t> starts_;
  std::vector<std::uint8_t> ends_, tails_, texts_;
  std::vector<std::int32_t> heights_;
  std::array<std::uint8_t, 256> classes_{};
  int class_count_ = 0;
};

}  // namespace hyb
