#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/constraint/expression.h"
#include "core/constraint/rule_graph.h"

namespace hyb {

/// A deterministic automaton over characters: a language that others are intersected with and
/// taken from. From each state an accepting one is reached; the empty language has no states.
class CharAutomaton {
 public:
  struct Edge {
    char32_t low, high;
    std::int32_t to;
  };
  struct State {
    std::vector<Edge> edges;  ///< in order of characters
    bool accepts = false;
  };
  enum class Operation { both, either, without };

  CharAutomaton() = default;
  /// `search`: the texts that contain a match, as of JSON schema's `pattern`; else those that match
  /// as a whole. Throws Error(usage) that begins with `source` where the automaton gets too large.
  CharAutomaton(const Expression& expression, bool search, const std::string& source);

  static CharAutomaton all();
  /// Texts of min to max characters; max < 0: no limit.
  static CharAutomaton of_length(std::int64_t min, std::int64_t max, const std::string& source);
  static CharAutomaton of_texts(const std::vector<std::string>& texts, const std::string& source);
  /// The decimal spellings, with a sign or not, of the multiples of `divisor`.
  static CharAutomaton of_multiples(std::int64_t divisor);

  CharAutomaton combined(const CharAutomaton& other, Operation operation,
                         const std::string& source) const;
  bool empty() const { return states_.empty(); }
  bool contains(std::string_view text) const;
  /// Adds the language between two states of a graph.
  void add_to(RuleGraph& graph, std::int32_t from, std::int32_t to,
              RuleGraph::Spelling spelling) const;

 private:
  std::int32_t next(std::int32_t state, char32_t character) const;
  void trim();

  std::vector<State> states_;  // the first one is the start
};

}  // namespace hyb
