#include "core/constraint/grammar.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/constraint/regex.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

using Id = Expressions::Id;

constexpr std::size_t grammar_edges_max = 1'000'000;
constexpr std::size_t call_work_max = 20'000'000;  // less than a second
constexpr int never = Grammar::depth_max + 1;      // a height: no text, or only too deep ones

const SymbolSet escaped_in_json({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
const SymbolSet characters = SymbolSet({{0xD800, 0xDFFF}}).complement();
const std::array<SymbolSet, VocabularyTrie::kinds> characters_of{
    SymbolSet({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}),
    SymbolSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}, {0xD800, 0xDFFF}}).complement()};

/// The shortest escape of a character that JSON strings do not hold as it is.
std::string escape_of(char32_t character) {
  static constexpr std::string_view plain = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
  const std::size_t at = plain.find(static_cast<char>(character));
  if (at != std::string_view::npos) return std::string("\\") + letters[at];
  static constexpr std::string_view digits = "0123456789abcdef";
  return std::string("\\u00") + digits[character >> 4] + digits[character & 15];
}

/// Spells the symbols of expressions as bytes.
class Speller {
 public:
  struct Spelled {
    std::vector<SymbolSet::Range> bytes;  // what takes one byte
    Id longer = Expressions::nothing;     // over bytes: what takes several
    std::vector<std::uint32_t> rules;
    std::array<bool, VocabularyTrie::kinds> is_text{};  // all characters of words, or text
  };

  Speller(Expressions& expressions, Grammar::Spelling spelling)
      : expressions_(expressions), is_json_(spelling == Grammar::Spelling::json) {}

  const Spelled& spell(const SymbolSet& set) {
    const auto [entry, is_new] = known_.try_emplace(set);
    Spelled& spelled = entry->second;
    if (!is_new) return spelled;
    std::vector<Id> longer;
    SymbolSet raw = set.both(characters);
    for (std::size_t kind = 0; kind < spelled.is_text.size(); ++kind)
      spelled.is_text[kind] = raw.both(characters_of[kind]) == characters_of[kind];
    if (is_json_) {
      longer.push_back(escapes_of(raw));
      raw = raw.both(escaped_in_json.complement());
    }
    for (const auto& [low, high] : raw.ranges()) {
      if (low < 0x80) spelled.bytes.push_back({low, std::min(high, char32_t{0x7F})});
      if (high >= 0x80) add_utf8(std::max(low, char32_t{0x80}), high, longer);
    }
    for (const auto& [low, high] : set.ranges()) {
      for (char32_t rule = std::max<char32_t>(low, first_rule); rule <= high; ++rule)
        spelled.rules.push_back(rule - first_rule);
      const char32_t byte = std::max<char32_t>(low, first_byte), last = first_byte + 255;
      if (byte <= std::min(high, last))
        spelled.bytes.push_back({byte - first_byte, std::min(high, last) - first_byte});
    }
    spelled.longer = expressions_.whole(expressions_.choice(std::move(longer)));
    return spelled;
  }

 private:
  /// One of the bytes from the first to the second of each pair.
  Id among(std::string_view bounds) {
    std::vector<SymbolSet::Range> ranges;
    for (std::size_t i = 0; i < bounds.size(); i += 2) {
      ranges.push_back({first_byte + static_cast<unsigned char>(bounds[i]),
                        first_byte + static_cast<unsigned char>(bounds[i + 1])});
    }
    return expressions_.chars(SymbolSet(std::move(ranges)));
  }

  Id any_escape() {
    Expressions& x = expressions_;
    const Id u = x.bytes("u"), d = among("ddDD"), hex = among("09afAF");
    const Id hex2 = x.repeat(hex, 2, 2), hex3 = x.repeat(hex, 3, 3);
    const Id single =
        x.choice({x.sequence(among("09acACefEF"), hex3), x.sequence({d, among("07"), hex2})});
    const Id pair = x.sequence({d, among("89abAB"), hex2, x.bytes("\\u"), d, among("cfCF"), hex2});
    return x.sequence(x.bytes("\\"), x.choice({among("\"\"\\\\//bbffnnrrtt"), x.sequence(u, single),
                                               x.sequence(u, pair)}));
  }

  Id escapes_of(const SymbolSet& set) {
    if (set.both(characters) == characters) return any_escape();
    std::vector<Id> choices;
    const SymbolSet escaped = set.both(escaped_in_json);
    for (const auto& [low, high] : escaped.ranges())
      for (char32_t c = low; c <= high; ++c) choices.push_back(expressions_.bytes(escape_of(c)));
    return expressions_.choice(std::move(choices));
  }

  void add_utf8(char32_t low, char32_t high, std::vector<Id>& choices) {
    for (const char32_t limit : {char32_t{0x7FF}, char32_t{0xFFFF}}) {
      if (low <= limit && limit < high) {
        add_utf8(low, limit, choices);
        return add_utf8(limit + 1, high, choices);
      }
    }
    std::string first, last;
    append_utf8(first, low);
    append_utf8(last, high);
    // Ranges whose ends differ in a byte before others that do not take all values are cut there.
    for (std::size_t i = 1; i < first.size(); ++i) {
      const char32_t mask = (char32_t{1} << (6 * i)) - 1;
      if ((low & ~mask) == (high & ~mask)) continue;
      if ((low & mask) != 0) {
        add_utf8(low, low | mask, choices);
        return add_utf8((low | mask) + 1, high, choices);
      }
      if ((high & mask) != mask) {
        add_utf8(low, (high & ~mask) - 1, choices);
        return add_utf8(high & ~mask, high, choices);
      }
    }
    Id result = Expressions::empty;
    for (std::size_t i = first.size(); i-- > 0;) {
      const char bounds[] = {first[i], last[i]};
      result = expressions_.sequence(among({bounds, 2}), result);
    }
    choices.push_back(result);
  }

  Expressions& expressions_;
  bool is_json_;
  std::map<SymbolSet, Spelled> known_;
};

/// Writes rules as states and edges. A state is an expression: what may follow in its rule.
class RuleWriter {
 public:
  using Edge = Grammar::Edge;
  using Kind = Grammar::Kind;

  RuleWriter(Expressions& expressions, Grammar::Spelling spelling)
      : expressions_(expressions), speller_(expressions, spelling) {}

  void write(std::span<const Grammar::Rule> rules) {
    for (const Grammar::Rule& rule : rules) starts.push_back(state_of(rule.body));
    for (std::size_t state = 0; state < bodies_.size(); ++state)
      write_state(static_cast<std::int32_t>(state));
    for (const Id body : bodies_) ends.push_back(expressions_.accepts(body));
  }

  std::vector<Edge> edges;
  std::vector<std::int32_t> starts;  // by rule
  std::vector<std::uint8_t> ends;    // by state
  /// Says where all characters of words, or of text, lead from a state to one other.
  std::array<std::vector<Edge>, VocabularyTrie::kinds> texts;

 private:
  std::int32_t state_of(Id body) {
    const auto [entry, is_new] =
        states_.try_emplace(body, static_cast<std::int32_t>(bodies_.size()));
    if (is_new) bodies_.push_back(body);
    return entry->second;
  }

  void add(const Edge& edge) {
    if (edges.size() >= grammar_edges_max) {
      throw Error(ErrorKind::usage, expressions_.source() + ": takes more than " +
                                        std::to_string(grammar_edges_max) +
                                        " edges of an automaton; use smaller counts and lengths");
    }
    edges.push_back(edge);
  }

  void write_state(std::int32_t from) {
    std::map<Id, std::vector<SymbolSet::Range>> symbols;
    // Alternatives stay apart, as sets of states are followed anyway (Constraint): made
    // deterministic, a few of them can take very many states.
    for (const Id part : expressions_.alternatives(bodies_[static_cast<std::size_t>(from)])) {
      for (const auto& [low, high, to] : expressions_.next(part))
        symbols[to].push_back({low, high});
    }
    for (auto& [to, ranges] : symbols)
      write_symbols(from, state_of(to), SymbolSet(std::move(ranges)));
  }

  void write_symbols(std::int32_t from, std::int32_t to, const SymbolSet& set) {
    const Speller::Spelled& spelled = speller_.spell(set);
    for (std::size_t kind = 0; kind < texts.size(); ++kind)
      if (spelled.is_text[kind]) texts[kind].push_back({from, to, 0, 0, Kind::range});
    for (const auto& [low, high] : spelled.bytes) add({from, to, low, high, Kind::range});
    for (const std::uint32_t rule : spelled.rules) add({from, to, rule, rule, Kind::call});
    if (spelled.longer == Expressions::nothing) return;
    // What takes several bytes goes through a rule, which all states share.
    const auto [entry, is_new] =
        rules_.try_emplace(spelled.longer, static_cast<std::uint32_t>(starts.size()));
    if (is_new) starts.push_back(state_of(spelled.longer));
    add({from, to, entry->second, entry->second, Kind::call});
  }

  Expressions& expressions_;
  Speller speller_;
  std::unordered_map<Id, std::int32_t> states_;
  std::vector<Id> bodies_;  // by state
  std::map<Id, std::uint32_t> rules_;
};

Grammar grammar_of(Expressions& expressions, Id language) {
  return Grammar(expressions, {{"root", language}}, Grammar::Spelling::utf8);
}

}  // namespace

Grammar Grammar::json_object(const std::string& source) {
  return from_json_schema(Json{{"type", "object"}}, source);
}

Grammar Grammar::from_regex(std::string_view regex, const std::string& source) {
  Expressions expressions(source);
  return grammar_of(expressions, read_regex(regex, expressions));
}

Grammar Grammar::one_of(std::span<const std::string> texts, const std::string& source) {
  Expressions expressions(source);
  std::vector<Id> choices;
  for (const std::string& text : texts) {
    if (!is_well_formed(text))
      throw Error(ErrorKind::usage, source + ": '" + excerpt(text) + "' is not UTF-8");
    choices.push_back(expressions.text(text));
  }
  return grammar_of(expressions, expressions.whole(expressions.choice(std::move(choices))));
}

Grammar::Grammar(Expressions& expressions, const std::vector<Rule>& rules, Spelling spelling)
    : source_(expressions.source()) {
  RuleWriter writer(expressions, spelling);
  writer.write(rules);
  edges_ = std::move(writer.edges);
  starts_ = std::move(writer.starts);
  ends_ = std::move(writer.ends);
  start_ = starts_[rules.size() - 1];
  sort_edges();
  check_left_recursion(rules);
  for (std::size_t state = 0; state < ends_.size(); ++state)
    tails_.push_back(ends_[state] && first_[state] == first_[state + 1]);
  find_heights();
  if (height(start_) == never) {
    throw Error(ErrorKind::usage,
                source_ +
                    ": no text is allowed (the constraint contradicts itself, or every "
                    "text nests deeper than " +
                    std::to_string(depth_max) + " rules)");
  }
  texts_.resize(ends_.size());
  for (std::size_t kind = 0; kind < texts_[0].size(); ++kind) find_texts(writer.texts[kind], kind);
  std::erase_if(edges_, [&](const Edge& edge) {
    return height(edge.to) == never ||
           (edge.kind == Kind::call && height(rule_start(edge)) == never);
  });
  sort_edges();
  find_classes();
}

void Grammar::sort_edges() {
  std::ranges::stable_sort(edges_, {}, &Edge::from);
  first_.assign(ends_.size() + 1, 0);
  for (const Edge& edge : edges_) ++first_[index(edge.from) + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

/// Calls `improve` for the edges that lead to a state whenever something of it was improved, until
/// nothing is; it returns whether it improved the state that the edge comes from.
template <typename Improve>
void Grammar::propagate(std::span<const Edge> edges, Improve&& improve) const {
  std::vector<std::vector<const Edge*>> leading_to(ends_.size());
  for (const Edge& edge : edges) {
    leading_to[index(edge.to)].push_back(&edge);
    if (edge.kind == Kind::call) leading_to[index(rule_start(edge))].push_back(&edge);
  }
  std::vector<std::int32_t> queue;
  for (std::size_t state = ends_.size(); state-- > 0;)
    queue.push_back(static_cast<std::int32_t>(state));
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const Edge* edge : leading_to[index(queue[i])])
      if (improve(*edge)) queue.push_back(edge->from);
  }
}

void Grammar::find_heights() {
  for (const bool is_end : ends_) heights_.push_back(is_end ? 0 : never);
  propagate(edges_, [&](const Edge& edge) {
    int height = heights_[index(edge.to)];
    if (edge.kind == Kind::call)
      height = std::max(height, heights_[index(rule_start(edge))] + (is_tail(edge.to) ? 0 : 1));
    if (height >= heights_[index(edge.from)]) return false;
    heights_[index(edge.from)] = height;
    return true;
  });
}

void Grammar::find_texts(std::span<const Edge> texts, std::size_t kind) {
  propagate(texts, [&](const Edge& edge) {
    const int text = std::min(text_max, this->text(edge.to, kind) + 1);
    if (text <= this->text(edge.from, kind) || height(edge.to) > text_height) return false;
    texts_[index(edge.from)][kind] = static_cast<std::uint8_t>(text);
    return true;
  });
}

std::vector<std::uint32_t> Grammar::called_first(std::int32_t state,
                                                 std::span<const std::uint8_t> may_be_empty,
                                                 std::size_t& work) const {
  std::vector<std::uint32_t> calls;
  std::vector<std::int32_t> states{state};
  std::unordered_set<std::int32_t> seen{state};
  while (!states.empty()) {
    const auto out = edges(states.back());
    states.pop_back();
    work += 1 + out.size();
    if (work > call_work_max) {
      throw Error(ErrorKind::usage,
                  source_ + ": too many rules begin with others that may be empty");
    }
    for (const Edge& edge : out) {
      if (edge.kind != Kind::call) continue;
      calls.push_back(edge.low);
      if (may_be_empty[index(rule_start(edge))] && seen.insert(edge.to).second)
        states.push_back(edge.to);
    }
  }
  return calls;
}

void Grammar::check_left_recursion(std::span<const Rule> rules) const {
  std::vector<std::uint8_t> may_be_empty = ends_;
  propagate(edges_, [&](const Edge& edge) {
    if (edge.kind != Kind::call || may_be_empty[index(edge.from)] ||
        !may_be_empty[index(edge.to)] || !may_be_empty[index(rule_start(edge))])
      return false;
    return (may_be_empty[index(edge.from)] = 1) != 0;
  });
  // A walk over what can be called before a byte is read, without recursion of its own.
  enum Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(starts_.size(), fresh);
  std::size_t work = 0;
  std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> path;  // rules and their calls
  for (std::uint32_t root = 0; root < rules.size(); ++root) {
    for (std::uint32_t rule = root;;) {
      if (marks[rule] == open) {
        throw Error(ErrorKind::usage, source_ + ": the rule '" + rules[rule].name +
                                          "' calls itself before it reads a character (left "
                                          "recursion); write it as a repetition");
      }
      if (marks[rule] == fresh) {
        marks[rule] = open;
        path.push_back({rule, called_first(starts_[rule], may_be_empty, work)});
      }
      while (!path.empty() && path.back().second.empty()) {
        marks[path.back().first] = done;
        path.pop_back();
      }
      if (path.empty()) break;
      rule = path.back().second.back();
      path.back().second.pop_back();
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
