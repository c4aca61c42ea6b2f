#include "core/constraint/expression.h"

#include <algorithm>
#include <unordered_set>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

constexpr std::int32_t height_max = 2000;  // 1.1 MB of stack

}  // namespace

SymbolSet::SymbolSet(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  for (const Range& range : ranges) {
    if (ranges_.empty() || range.first > ranges_.back().second + 1)
      ranges_.push_back(range);
    else
      ranges_.back().second = std::max(ranges_.back().second, range.second);
  }
}

SymbolSet SymbolSet::complement() const {
  SymbolSet rest;
  char32_t next = 0;
  for (const auto& [low, high] : ranges_) {
    if (low > last) break;
    if (low > next) rest.ranges_.push_back({next, low - 1});
    next = high + 1;
  }
  if (next <= last) rest.ranges_.push_back({next, last});
  return rest;
}

SymbolSet SymbolSet::both(const SymbolSet& other) const {
  std::vector<Range> missing = complement().ranges_;
  std::ranges::copy(other.complement().ranges_, std::back_inserter(missing));
  return SymbolSet(std::move(missing)).complement();
}

std::size_t Expressions::Hash::operator()(const Node& node) const {
  auto hash = static_cast<std::size_t>(node.kind);
  const auto mix = [&](std::size_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL + (hash >> 29);
  };
  for (const Id part : node.parts) mix(static_cast<std::size_t>(part));
  for (const auto& [low, high] : node.set.ranges()) mix(std::size_t{low} << 32 | high);
  mix(static_cast<std::size_t>(node.a));
  mix(static_cast<std::size_t>(node.b));
  return hash;
}

Expressions::Expressions(std::string source) : source_(std::move(source)) {
  add({Kind::choice}, false);
  add({Kind::sequence}, true);
  repeat(chars(SymbolSet().complement()), 0, unbounded);
}

void Expressions::spend(std::size_t work) {
  static constexpr std::size_t work_max = 1'500'000;  // less than a second, 150 MB
  work_ += work;
  if (work_ > work_max) {
    throw Error(ErrorKind::usage, source_ +
                                      ": takes an automaton of too many states and edges; "
                                      "use simpler patterns and smaller counts and lengths");
  }
}

Expressions::Id Expressions::add(Node node, bool accepts) {
  bool plain = node.set.ranges().empty() || node.set.ranges().back().second <= SymbolSet::last;
  std::int32_t height = 0;
  for (std::size_t i = 0; i < node.parts.size(); ++i) {
    const Entry& part = entry(node.parts[i]);
    plain = plain && part.plain;
    const bool is_tail = node.kind == Kind::sequence && i == 1;
    // derive() reads a tail where the head may be empty, and the tail's own parts in a loop.
    if (is_tail && !this->accepts(node.parts[0])) continue;
    const bool is_loop = is_tail && part.node->kind == Kind::sequence;
    height = std::max(height, part.height + (is_loop ? 0 : 1));
  }
  if (height > height_max) {
    throw Error(ErrorKind::usage, source_ + ": nests more than " + std::to_string(height_max) +
                                      " repetitions, alternatives and restrictions in each other");
  }
  spend(2 + node.parts.size() + node.set.ranges().size());
  const auto [known, is_new] = ids_.try_emplace(std::move(node), static_cast<Id>(entries_.size()));
  if (is_new) entries_.push_back({&known->first, accepts, plain, height});
  return known->second;
}

Expressions::Id Expressions::chars(SymbolSet set) {
  return set.ranges().empty() ? nothing : add({Kind::chars, {}, 0, 0, std::move(set)}, false);
}

Expressions::Id Expressions::text(std::string_view text) {
  std::vector<Id> row;
  for (std::size_t at = 0; at < text.size();) row.push_back(one(next_code_point(text, at)));
  return sequence(row);
}

Expressions::Id Expressions::bytes(std::string_view text) {
  std::vector<Id> row;
  for (const char byte : text) row.push_back(one(first_byte + static_cast<unsigned char>(byte)));
  return sequence(row);
}

Expressions::Id Expressions::sequence(Id head, Id tail) {
  if (head == nothing || tail == nothing) return nothing;
  if (head == empty || tail == empty) return head == empty ? tail : head;
  return add({Kind::sequence, {head, tail}}, accepts(head) && accepts(tail));
}

Expressions::Id Expressions::sequence(const std::vector<Id>& parts) {
  Id result = empty;
  for (std::size_t i = parts.size(); i-- > 0;) result = sequence(parts[i], result);
  return result;
}

Expressions::Id Expressions::choice(std::vector<Id> parts) {
  std::vector<Id> flat;
  for (const Id part : parts) std::ranges::copy(alternatives(part), std::back_inserter(flat));
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.size() == 1) return flat[0];
  // Once a search has found its match, all that may follow is one state.
  const auto is_plain = [&](Id part) { return entry(part).plain; };
  if (std::ranges::binary_search(flat, any) && std::ranges::all_of(flat, is_plain)) return any;
  const bool accepted = std::ranges::any_of(flat, [&](Id part) { return accepts(part); });
  return add({Kind::choice, std::move(flat)}, accepted);
}

Expressions::Id Expressions::both(Id a, Id b) {
  if (a == b || b == any) return a;
  if (a == any) return b;
  if (a == nothing || b == nothing) return nothing;
  return add({Kind::both, {std::min(a, b), std::max(a, b)}}, accepts(a) && accepts(b));
}

Expressions::Id Expressions::complement(Id language) {
  if (language == nothing || language == any) return language == any ? nothing : any;
  return add({Kind::complement, {language}}, !accepts(language));
}

Expressions::Id Expressions::repeat(Id part, int min, int max) {
  if (max == 0 || part == empty || (part == nothing && min == 0)) return empty;
  if (part == nothing || (min == 1 && max == 1)) return part;
  return add({Kind::repeat, {part}, min, max}, min == 0 || accepts(part));
}

Expressions::Id Expressions::multiples(int divisor, int rest) {
  return add({Kind::multiples, {}, rest, divisor}, rest == 0);
}

Expressions::Id Expressions::whole(Id language) { return within(skip(language, text_begin)); }

Expressions::Id Expressions::within(Id language) {
  if (language == nothing || language == any || node(language).kind == Kind::whole) return language;
  return add({Kind::whole, {language}}, accepts(skip(language, text_end)));
}

/// A language, or what may follow a symbol in it once or more often.
Expressions::Id Expressions::skip(Id language, Symbol symbol) {
  std::vector<Id> found{language};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const Edge& edge : next(found[i])) {
      const bool is_new = std::ranges::find(found, edge.to) == found.end();
      if (edge.low == symbol && is_new) found.push_back(edge.to);
    }
  }
  return choice(std::move(found));
}

std::vector<Expressions::Id> Expressions::alternatives(Id id) const {
  return node(id).kind == Kind::choice ? node(id).parts : std::vector<Id>{id};
}

const std::vector<Expressions::Edge>& Expressions::next(Id id) {
  const auto known = edges_.find(id);
  if (known != edges_.end()) return known->second;
  std::vector<Edge> edges = derive(node(id));
  spend(1 + edges.size());
  return edges_[id] = std::move(edges);
}

std::vector<Expressions::Edge> Expressions::derive(const Node& node) {
  std::vector<Edge> edges;
  const auto add_edges = [&](Id part, auto&& continued) {
    for (const Edge& edge : next(part)) edges.push_back({edge.low, edge.high, continued(edge.to)});
  };
  const auto same = [](Id to) { return to; };
  const auto any_of = [&](std::vector<Id> targets) { return choice(std::move(targets)); };
  if (node.kind == Kind::sequence && !node.parts.empty()) {
    // The head, and as long as heads may be empty what follows: a loop, as rows may be long.
    for (Id rest = empty, head = node.parts[0], tail = node.parts[1];; tail = rest) {
      add_edges(head, [&](Id to) { return sequence(to, tail); });
      if (!accepts(head) || tail == empty) break;
      const bool is_pair = this->node(tail).kind == Kind::sequence;
      head = is_pair ? this->node(tail).parts[0] : tail;
      rest = is_pair ? this->node(tail).parts[1] : empty;
    }
    return accepts(node.parts[0]) ? overlay(std::move(edges), any_of) : edges;
  }
  switch (node.kind) {
    case Kind::sequence:
      return edges;
    case Kind::chars:
      for (const auto& [low, high] : node.set.ranges()) edges.push_back({low, high, empty});
      return edges;
    case Kind::choice:
      for (const Id part : node.parts) add_edges(part, same);
      return overlay(std::move(edges), any_of);
    case Kind::both:
      for (const Id part : node.parts) add_edges(part, same);
      return overlay(std::move(edges), [&](const std::vector<Id>& targets) {
        return targets.size() == 2 ? both(targets[0], targets[1]) : nothing;
      });
    case Kind::complement:
      add_edges(node.parts[0], same);
      edges.push_back({0, SymbolSet::last, nothing});
      return overlay(std::move(edges), [&](std::vector<Id> targets) {
        return complement(choice(std::move(targets)));
      });
    case Kind::repeat: {
      const Id part = node.parts[0];
      const int min = accepts(part) ? 0 : std::max(node.a - 1, 0);
      const Id rest = repeat(part, min, node.b == unbounded ? unbounded : node.b - 1);
      add_edges(part, [&](Id to) { return sequence(to, rest); });
      return edges;
    }
    case Kind::multiples:
      for (int digit = 0; digit < 10; ++digit) {
        const auto c = static_cast<char32_t>('0' + digit);
        edges.push_back({c, c, multiples(node.b, (node.a * 10 + digit) % node.b)});
      }
      return edges;
    case Kind::whole:
      add_edges(node.parts[0], [&](Id to) { return within(to); });
      std::erase_if(edges, [](const Edge& edge) { return edge.low >= text_begin; });
      return edges;
  }
  return edges;
}

/// Cuts edges that overlap into ones that do not, and joins their targets.
template <typename Join>
std::vector<Expressions::Edge> Expressions::overlay(std::vector<Edge> edges, Join&& join) {
  std::vector<char32_t> cuts;
  for (const Edge& edge : edges) cuts.insert(cuts.end(), {edge.low, edge.high + 1});
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::ranges::sort(edges, {}, &Edge::low);
  std::vector<Edge> open, result;
  auto next = edges.begin();
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const char32_t low = cuts[i], high = cuts[i + 1] - 1;
    std::erase_if(open, [&](const Edge& edge) { return edge.high < low; });
    for (; next != edges.end() && next->low == low; ++next) open.push_back(*next);
    spend(1 + open.size());
    std::vector<Id> targets;
    for (const Edge& edge : open) targets.push_back(edge.to);
    const Id to = targets.empty() ? nothing : join(std::move(targets));
    if (to == nothing) continue;
    if (!result.empty() && result.back().to == to && result.back().high + 1 == low)
      result.back().high = high;
    else
      result.push_back({low, high, to});
  }
  return result;
}

bool Expressions::is_empty(Id language) {
  std::vector<Id> queue{language};
  std::unordered_set<Id> seen{language};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    if (accepts(queue[i])) return false;
    for (const Edge& edge : next(queue[i]))
      if (seen.insert(edge.to).second) queue.push_back(edge.to);
  }
  return true;
}

bool Expressions::contains(Id language, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    Id to = nothing;
    for (const Edge& edge : next(language))
      if (edge.low <= c && c <= edge.high) to = edge.to;
    language = to;
  }
  return accepts(language);
}

}  // namespace hyb
