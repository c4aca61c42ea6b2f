#include "core/constraint/char_automaton.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

constexpr std::size_t automaton_states_max = 100'000;
constexpr std::size_t automaton_edges_max = 400'000;
constexpr std::size_t automaton_members_max = 500'000;  // of all sets of states: a bound of time

[[noreturn]] void too_large(const std::string& source) {
  throw Error(ErrorKind::usage, source + ": a pattern or length takes an automaton of more than " +
                                    std::to_string(automaton_states_max) +
                                    " states; make it simpler");
}

using StateSet = std::vector<std::int32_t>;
using X = Expression;

/// The subset construction: sets of states of a graph, and the characters between them.
class Determinizer {
 public:
  Determinizer(const Expression& expression, bool search, const std::string& source)
      : graph_(source, RuleGraph::Spelling::character, automaton_edges_max) {
    const std::int32_t start = graph_.add_state(), end = graph_.add_state();
    if (search) {
      X any = X::repeat(X::of(CharSet::all()), 0, X::unbounded);
      graph_.add(start, end, X::sequence({any, expression, any}));
    } else {
      graph_.add(start, end, expression);
    }
    leaving_.resize(static_cast<std::size_t>(graph_.states()));
    for (const RuleGraph::Edge& edge : graph_.edges())
      leaving_[static_cast<std::size_t>(edge.from)].push_back(edge);
    end_ = end;
    id_of(closure({start}, true, false), true);
  }

  std::vector<CharAutomaton::State> run() {
    std::vector<CharAutomaton::State> states;
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      const auto [set, is_first] = sets_[i];
      const StateSet at_end = closure(set, is_first, true);
      states.push_back({edges_of(set), std::binary_search(at_end.begin(), at_end.end(), end_)});
    }
    return states;
  }

 private:
  StateSet closure(StateSet set, bool at_begin, bool at_end) const {
    std::set<std::int32_t> seen(set.begin(), set.end());
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (const RuleGraph::Edge& edge : leaving_[static_cast<std::size_t>(set[i])]) {
        const bool passes = edge.kind == RuleGraph::Kind::empty ||
                            (edge.kind == RuleGraph::Kind::begin && at_begin) ||
                            (edge.kind == RuleGraph::Kind::end && at_end);
        if (passes && seen.insert(edge.to).second) set.push_back(edge.to);
      }
    }
    return StateSet(seen.begin(), seen.end());
  }

  std::vector<CharAutomaton::Edge> edges_of(const StateSet& set) {
    std::vector<RuleGraph::Edge> ranges;
    std::set<char32_t> cuts;  // where an interval of characters with one target begins
    for (const std::int32_t state : set) {
      for (const RuleGraph::Edge& edge : leaving_[static_cast<std::size_t>(state)]) {
        if (edge.kind != RuleGraph::Kind::range) continue;
        ranges.push_back(edge);
        cuts.insert({edge.low, edge.high + 1});
      }
    }
    std::vector<CharAutomaton::Edge> edges;
    for (auto cut = cuts.begin(); cut != cuts.end() && std::next(cut) != cuts.end(); ++cut) {
      std::set<std::int32_t> targets;
      for (const RuleGraph::Edge& edge : ranges)
        if (edge.low <= *cut && *cut <= edge.high) targets.insert(edge.to);
      members_ += ranges.size();
      if (members_ > automaton_members_max) too_large(graph_.source());
      if (targets.empty()) continue;
      const std::int32_t to =
          id_of(closure(StateSet(targets.begin(), targets.end()), false, false), false);
      const char32_t high = *std::next(cut) - 1;
      if (!edges.empty() && edges.back().to == to && edges.back().high + 1 == *cut)
        edges.back().high = high;
      else
        edges.push_back({*cut, high, to});
    }
    return edges;
  }

  std::int32_t id_of(StateSet set, bool is_first) {
    members_ += set.size();
    const auto [place, is_new] =
        ids_.try_emplace({set, is_first}, static_cast<std::int32_t>(sets_.size()));
    if (is_new) sets_.push_back(place->first);
    if (members_ > automaton_members_max || sets_.size() > automaton_states_max)
      too_large(graph_.source());
    return place->second;
  }

  RuleGraph graph_;
  std::vector<std::vector<RuleGraph::Edge>> leaving_;
  std::int32_t end_ = 0;
  std::size_t members_ = 0;
  std::map<std::pair<StateSet, bool>, std::int32_t> ids_;
  std::vector<std::pair<StateSet, bool>> sets_;
};

}  // namespace

CharAutomaton::CharAutomaton(const Expression& expression, bool search, const std::string& source)
    : states_(Determinizer(expression, search, source).run()) {
  trim();
}

CharAutomaton CharAutomaton::all() {
  CharAutomaton result;
  result.states_.push_back({{{0, CharSet::last, 0}}, true});
  return result;
}

CharAutomaton CharAutomaton::of_length(std::int64_t min, std::int64_t max,
                                       const std::string& source) {
  CharAutomaton result;
  if (max >= 0 && max < min) return result;
  const std::int64_t last = max >= 0 ? max : min;
  if (last >= static_cast<std::int64_t>(automaton_states_max)) too_large(source);
  for (std::int64_t i = 0; i <= last; ++i) {
    result.states_.push_back({{}, i >= min});
    if (i < last || max < 0)
      result.states_.back().edges.push_back(
          {0, CharSet::last, static_cast<std::int32_t>(std::min(i + 1, last))});
  }
  return result;
}

CharAutomaton CharAutomaton::of_texts(const std::vector<std::string>& texts,
                                      const std::string& source) {
  // A tree of their characters.
  std::vector<std::map<char32_t, std::int32_t>> nodes(1);
  std::vector<bool> accepts(1);
  for (const std::string& text : texts) {
    std::size_t node = 0;
    for (std::size_t at = 0; at < text.size();) {
      const char32_t c = next_code_point(text, at);
      const auto [place, is_new] =
          nodes[node].try_emplace(c, static_cast<std::int32_t>(nodes.size()));
      node = static_cast<std::size_t>(place->second);
      if (!is_new) continue;
      nodes.emplace_back();
      accepts.push_back(false);
      if (nodes.size() > automaton_edges_max) too_large(source);
    }
    accepts[node] = true;
  }
  CharAutomaton result;
  if (texts.empty()) return result;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    result.states_.push_back({{}, accepts[i]});
    for (const auto& [c, to] : nodes[i]) result.states_.back().edges.push_back({c, c, to});
  }
  return result;
}

CharAutomaton CharAutomaton::of_multiples(std::int64_t divisor) {
  CharAutomaton result;
  const auto count = static_cast<std::int32_t>(divisor);
  result.states_.push_back({{{'-', '-', 1}}, false});
  result.states_.push_back({});
  const auto add_digits = [&](State& state, std::int64_t rest) {
    for (std::int32_t d = 0; d < 10; ++d) {
      const auto c = static_cast<char32_t>('0' + d);
      state.edges.push_back({c, c, static_cast<std::int32_t>((rest * 10 + d) % count) + 2});
    }
  };
  add_digits(result.states_[0], 0);
  add_digits(result.states_[1], 0);
  for (std::int32_t rest = 0; rest < count; ++rest) {
    result.states_.push_back({{}, rest == 0});
    add_digits(result.states_.back(), rest);
  }
  return result;
}

CharAutomaton CharAutomaton::combined(const CharAutomaton& other, Operation operation,
                                      const std::string& source) const {
  using Pair = std::pair<std::int32_t, std::int32_t>;  // -1: dead
  static constexpr std::int32_t dead = -1;
  CharAutomaton result;
  std::map<Pair, std::int32_t> ids;
  std::vector<Pair> pairs;
  const auto id_of = [&](Pair pair) {
    const auto [place, is_new] = ids.try_emplace(pair, static_cast<std::int32_t>(pairs.size()));
    if (is_new) pairs.push_back(pair);
    if (pairs.size() > automaton_states_max) too_large(source);
    return place->second;
  };
  id_of({empty() ? dead : 0, other.empty() ? dead : 0});
  const auto state_of = [](const CharAutomaton& from, std::int32_t state) {
    static const State nothing;
    return state == dead ? &nothing : &from.states_[static_cast<std::size_t>(state)];
  };
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Pair pair = pairs[i];
    const State* a = state_of(*this, pair.first);
    const State* b = state_of(other, pair.second);
    State state;
    state.accepts = operation == Operation::both     ? a->accepts && b->accepts
                    : operation == Operation::either ? a->accepts || b->accepts
                                                     : a->accepts && !b->accepts;
    auto left = a->edges.begin();
    auto right = b->edges.begin();
    for (char32_t c = 0; c <= CharSet::last;) {
      while (left != a->edges.end() && left->high < c) ++left;
      while (right != b->edges.end() && right->high < c) ++right;
      char32_t high = CharSet::last;
      const auto target = [&](auto edge, auto end) {
        if (edge == end) return dead;
        high = std::min(high, edge->low <= c ? edge->high : static_cast<char32_t>(edge->low - 1));
        return edge->low <= c ? edge->to : dead;
      };
      const std::int32_t x = target(left, a->edges.end()), y = target(right, b->edges.end());
      const bool lives = operation == Operation::both     ? x != dead && y != dead
                         : operation == Operation::either ? x != dead || y != dead
                                                          : x != dead;
      if (lives) state.edges.push_back({c, high, id_of({x, y})});
      c = high + 1;
    }
    result.states_.push_back(std::move(state));
  }
  result.trim();
  return result;
}

std::int32_t CharAutomaton::next(std::int32_t state, char32_t character) const {
  for (const Edge& edge : states_[static_cast<std::size_t>(state)].edges)
    if (edge.low <= character && character <= edge.high) return edge.to;
  return -1;
}

bool CharAutomaton::contains(std::string_view text) const {
  std::int32_t state = empty() ? -1 : 0;
  for (std::size_t at = 0; at < text.size() && state >= 0;)
    state = next(state, next_code_point(text, at));
  return state >= 0 && states_[static_cast<std::size_t>(state)].accepts;
}

void CharAutomaton::trim() {
  std::vector<std::vector<std::int32_t>> before(states_.size());
  std::vector<std::int32_t> queue, kept(states_.size(), -1);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges)
      before[static_cast<std::size_t>(edge.to)].push_back(static_cast<std::int32_t>(i));
    if (states_[i].accepts) queue.push_back(static_cast<std::int32_t>(i));
    if (states_[i].accepts) kept[i] = 0;
  }
  while (!queue.empty()) {
    const auto state = static_cast<std::size_t>(queue.back());
    queue.pop_back();
    for (const std::int32_t from : before[state]) {
      if (kept[static_cast<std::size_t>(from)] == 0) continue;
      kept[static_cast<std::size_t>(from)] = 0;
      queue.push_back(from);
    }
  }
  if (states_.empty() || kept[0] < 0) return states_.clear();
  std::int32_t count = 0;
  for (std::int32_t& id : kept)
    if (id == 0) id = count++;
  std::vector<State> states(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (kept[i] < 0) continue;
    State& state = states[static_cast<std::size_t>(kept[i])];
    state.accepts = states_[i].accepts;
    for (const Edge& edge : states_[i].edges) {
      const std::int32_t to = kept[static_cast<std::size_t>(edge.to)];
      if (to >= 0) state.edges.push_back({edge.low, edge.high, to});
    }
  }
  states_ = std::move(states);
}

void CharAutomaton::add_to(RuleGraph& graph, std::int32_t from, std::int32_t to,
                           RuleGraph::Spelling spelling) const {
  std::vector<std::int32_t> places;
  for (std::size_t i = 0; i < states_.size(); ++i) places.push_back(graph.add_state());
  if (!empty()) graph.add_empty(from, places[0]);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::map<std::int32_t, std::vector<CharSet::Range>> sets;
    for (const Edge& edge : states_[i].edges) sets[edge.to].push_back({edge.low, edge.high});
    for (auto& [target, ranges] : sets)
      graph.add_chars(places[i], places[static_cast<std::size_t>(target)],
                      CharSet(std::move(ranges)), spelling);
    if (states_[i].accepts) graph.add_empty(places[i], to);
  }
}

}  // namespace hyb
