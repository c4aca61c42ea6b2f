#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/constraint/expression.h"

namespace hyb {

/// A graph of states that expressions are added to (Thompson's construction). The labels of its
/// edges are characters, or the bytes of their UTF-8.
class RuleGraph {
 public:
  enum class Kind : std::uint8_t {
    range,
    empty,
    call,
    begin,
    end,
    text,  ///< a remark beside others: any character of text, and more, leads there
  };
  struct Edge {
    std::int32_t from, to;
    std::uint32_t low, high;  ///< of a range; a call: its rule, twice
    Kind kind;
  };
  struct Rule {
    std::string name;
    std::int32_t start = 0;
    std::int32_t end = 0;  ///< no edge leaves it
  };
  /// How a character is spelled: as itself, as UTF-8, or within a JSON string, where quotes,
  /// backslashes and control characters have the one shortest escape, and where any character will
  /// do, all have all escapes.
  enum class Spelling : std::uint8_t { character, utf8, json, any_json };

  /// More than `edges_max` edges are an Error(usage) that begins with `source`.
  RuleGraph(std::string source, Spelling spelling, std::size_t edges_max)
      : source_(std::move(source)), spelling_(spelling), edges_max_(edges_max) {}

  std::int32_t add_state();
  int add_rule(std::string name);
  void add(std::int32_t from, std::int32_t to, const Expression& expression);
  void add_empty(std::int32_t from, std::int32_t to) { add_edge({from, to, 0, 0, Kind::empty}); }
  void add_call(std::int32_t from, std::int32_t to, int rule);
  void add_bytes(std::int32_t from, std::int32_t to, std::uint32_t low, std::uint32_t high) {
    add_edge({from, to, low, high, Kind::range});
  }
  /// One character of a set. Rare ones go through a rule of their own, which all states share.
  void add_chars(std::int32_t from, std::int32_t to, const CharSet& set, Spelling spelling);

  const Rule& rule(int index) const { return rules_.at(static_cast<std::size_t>(index)); }
  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<Edge>& edges() const { return edges_; }
  std::int32_t states() const { return states_; }
  const std::string& source() const { return source_; }

 private:
  void add_edge(const Edge& edge);
  void add_repeat(std::int32_t from, std::int32_t to, const Expression& expression);
  void add_utf8(std::int32_t from, std::int32_t to, char32_t low, char32_t high);
  int spelled_rule(const CharSet& set, Spelling spelling);

  std::string source_;
  Spelling spelling_;
  std::size_t edges_max_;
  std::int32_t states_ = 0;
  std::vector<Rule> rules_;
  std::vector<Edge> edges_;
  std::map<std::pair<CharSet, Spelling>, int> spelled_rules_;
};

}  // namespace hyb
