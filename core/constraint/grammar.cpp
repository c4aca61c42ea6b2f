#include "core/constraint/grammar.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/constraint/char_automaton.h"
#include "core/constraint/regex.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t grammar_edges_max = 1'000'000;
using Kind = RuleGraph::Kind;

Grammar grammar_of(const CharAutomaton& language, const std::string& source) {
  RuleGraph graph(source, RuleGraph::Spelling::utf8, grammar_edges_max);
  const int root = graph.add_rule("root");
  language.add_to(graph, graph.rule(root).start, graph.rule(root).end, RuleGraph::Spelling::utf8);
  return Grammar(graph, root);
}

}  // namespace

Grammar Grammar::json_object(const std::string& source) {
  return from_json_schema(Json{{"type", "object"}}, source);
}

Grammar Grammar::from_regex(std::string_view regex, const std::string& source) {
  return grammar_of(CharAutomaton(read_regex(regex, source), false, source), source);
}

Grammar Grammar::one_of(std::span<const std::string> texts, const std::string& source) {
  for (const std::string& text : texts) {
    if (!is_well_formed(text))
      throw Error(ErrorKind::usage, source + ": '" + excerpt(text) + "' is not UTF-8");
  }
  return grammar_of(CharAutomaton::of_texts({texts.begin(), texts.end()}, source), source);
}

Grammar::Grammar(const RuleGraph& graph, int root)
    : source_(graph.source()), start_(graph.rule(root).start) {
  const auto count = static_cast<std::size_t>(graph.states());
  ends_.assign(count, 0);
  for (const RuleGraph::Rule& rule : graph.rules()) {
    starts_.push_back(rule.start);
    ends_[index(rule.end)] = 1;
  }
  sort_edges(graph.edges());
  check_left_recursion(graph);
  find_tails();
  find_heights(graph);
  if (height(start_) == never)
    throw Error(ErrorKind::usage,
                source_ + ": no text is allowed (the constraint contradicts itself)");
  if (height(start_) > depth_max) {
    throw Error(ErrorKind::usage,
                source_ + ": every text nests deeper than " + std::to_string(depth_max) + " rules");
  }
  find_texts();
  std::erase_if(edges_, [&](const Edge& edge) {
    return edge.kind == Kind::text || height(edge.to) == never ||
           (edge.kind == Kind::call && height(rule_start(edge)) == never);
  });
  sort_edges(std::move(edges_));
  find_classes();
}

void Grammar::sort_edges(std::vector<Edge> edges) {
  first_.assign(ends_.size() + 1, 0);
  for (const Edge& edge : edges) ++first_[index(edge.from) + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  std::vector<std::uint32_t> place(first_.begin(), first_.end() - 1);
  std::vector<Edge> sorted(edges.size());
  for (const Edge& edge : edges) sorted[place[index(edge.from)]++] = edge;
  edges_ = std::move(sorted);
}

void Grammar::find_tails() {
  tails_ = ends_;
  // Chains of empty edges are short but where a repetition ends, so a few rounds find them.
  for (int round = 0; round < 4; ++round) {
    for (std::int32_t state = 0; index(state) < ends_.size(); ++state) {
      const auto out = edges(state);
      if (out.size() == 1 && out[0].kind == Kind::empty && is_tail(out[0].to))
        tails_[index(state)] = 1;
    }
  }
}

void Grammar::find_heights(const RuleGraph& graph) {
  heights_.assign(ends_.size(), never);
  // Edges by the states that their heights derive from.
  std::vector<std::uint32_t> first(ends_.size() + 1, 0);
  const auto sources = [&](const Edge& edge, auto&& use) {
    use(index(edge.to));
    if (edge.kind == Kind::call) use(index(rule_start(edge)));
  };
  for (const Edge& edge : edges_) sources(edge, [&](std::size_t state) { ++first[state + 1]; });
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<std::uint32_t> place(first.begin(), first.end() - 1), users(first.back());
  for (std::uint32_t i = 0; i < edges_.size(); ++i)
    sources(edges_[i], [&](std::size_t state) { users[place[state]++] = i; });
  std::vector<std::int32_t> queue;
  for (const RuleGraph::Rule& rule : graph.rules()) {
    heights_[index(rule.end)] = 0;
    queue.push_back(rule.end);
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::size_t state = index(queue[i]);
    for (std::uint32_t k = first[state]; k < first[state + 1]; ++k) {
      const Edge& edge = edges_[users[k]];
      std::int32_t height = heights_[index(edge.to)];
      if (edge.kind == Kind::call) {
        const std::int32_t inner = heights_[index(rule_start(edge))];
        if (inner == never || height == never) continue;
        height = std::max(height, inner + (is_tail(edge.to) ? 0 : 1));
      }
      if (height >= heights_[index(edge.from)]) continue;
      heights_[index(edge.from)] = height;
      queue.push_back(edge.from);
    }
  }
}

void Grammar::check_left_recursion(const RuleGraph& graph) const {
  // Whether each state reaches the end of its rule by empty edges and calls alone.
  std::vector<std::uint8_t> nullable = ends_;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = edges_.size(); i-- > 0;) {
      const Edge& edge = edges_[i];
      if (nullable[index(edge.from)] || !nullable[index(edge.to)] || edge.kind == Kind::range ||
          edge.kind == Kind::text ||
          (edge.kind == Kind::call && !nullable[index(rule_start(edge))]))
        continue;
      nullable[index(edge.from)] = changed = true;
    }
  }
  // A walk over what can be called before a byte is read, without recursion of its own.
  enum Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(starts_.size(), fresh);
  const auto called_first = [&](std::uint32_t rule) {
    std::vector<std::uint32_t> calls;
    std::vector<std::int32_t> states{starts_[rule]};
    std::vector<std::int32_t> seen{starts_[rule]};
    while (!states.empty()) {
      const std::int32_t state = states.back();
      states.pop_back();
      for (const Edge& edge : edges(state)) {
        if (edge.kind == Kind::range || edge.kind == Kind::text) continue;
        if (edge.kind == Kind::call) calls.push_back(edge.low);
        if (edge.kind == Kind::call && !nullable[index(rule_start(edge))]) continue;
        if (std::find(seen.begin(), seen.end(), edge.to) != seen.end()) continue;
        seen.push_back(edge.to);
        states.push_back(edge.to);
      }
    }
    return calls;
  };
  std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> path;
  for (std::uint32_t root = 0; root < starts_.size(); ++root) {
    if (marks[root] != fresh) continue;
    marks[root] = open;
    path.push_back({root, called_first(root)});
    while (!path.empty()) {
      if (path.back().second.empty()) {
        marks[path.back().first] = done;
        path.pop_back();
        continue;
      }
      const std::uint32_t next = path.back().second.back();
      path.back().second.pop_back();
      if (marks[next] == open) {
        throw Error(ErrorKind::usage, source_ + ": the rule '" +
                                          graph.rule(static_cast<int>(next)).name +
                                          "' calls itself before it reads a character (left "
                                          "recursion); write it as a repetition");
      }
      if (marks[next] == done) continue;
      marks[next] = open;
      path.push_back({next, called_first(next)});
    }
  }
}

void Grammar::find_texts() {
  texts_.assign(ends_.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = edges_.size(); i-- > 0;) {
      const Edge& edge = edges_[i];
      const bool reads = edge.kind == Kind::text;
      if ((!reads && edge.kind != Kind::empty) || height(edge.to) > text_height) continue;
      const int text = std::min(text_max, this->text(edge.to) + (reads ? 1 : 0));
      if (text <= this->text(edge.from)) continue;
      texts_[index(edge.from)] = static_cast<std::uint8_t>(text);
      changed = true;
    }
  }
}

void Grammar::find_classes() {
  std::array<bool, 257> starts{};
  for (const Edge& edge : edges_) {
    if (edge.kind != Kind::range) continue;
    starts[edge.low] = starts[edge.high + 1] = true;
  }
  int current = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && starts[byte]) ++current;
    classes_[byte] = static_cast<std::uint8_t>(current);
  }
  class_count_ = current + 1;
}

}  // namespace hyb
