#include "core/constraint/rule_graph.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

using X = Expression;

const CharSet surrogate_set({{0xD800, 0xDFFF}});
const CharSet raw_in_json =
    CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0xD800, 0xDFFF}}).complement();
const CharSet raw_in_utf8 = surrogate_set.complement();
const CharSet ascii_set({{0, 0x7F}});
const CharSet no_text_set({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}, {0xD800, 0xDFFF}});

Expression one_of(std::string_view characters) {
  std::vector<CharSet::Range> ranges;
  for (const char c : characters) ranges.push_back({static_cast<char32_t>(c), char32_t(c)});
  return Expression::of(CharSet(std::move(ranges)));
}

/// The escapes of any character, for strings whose characters are free.
Expression any_escape() {
  const X hex = X::of(CharSet({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}));
  const X no_surrogate = X::choice(
      {X::sequence({X::of(CharSet({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}})),
                    X::repeat(hex, 3, 3)}),
       X::sequence({one_of("dD"), one_of("01234567"), X::repeat(hex, 2, 2)})});
  const X pair = X::sequence({one_of("dD"), one_of("89abAB"), X::repeat(hex, 2, 2), X::text("\\u"),
                              one_of("dD"), one_of("cdefCDEF"), X::repeat(hex, 2, 2)});
  return X::sequence(
      {X::text("\\"), X::choice({one_of("\"\\/bfnrt"), X::sequence({X::text("u"), no_surrogate}),
                                 X::sequence({X::text("u"), pair})})});
}

/// The shortest escape of a character that JSON strings do not hold as it is.
std::string escape_of(char32_t character) {
  static constexpr std::string_view plain = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
  const std::size_t at = plain.find(static_cast<char>(character));
  if (at != std::string_view::npos) return std::string("\\") + letters[at];
  static constexpr std::string_view digits = "0123456789abcdef";
  return std::string("\\u00") + digits[character >> 4] + digits[character & 15];
}

}  // namespace

std::int32_t RuleGraph::add_state() { return states_++; }

int RuleGraph::add_rule(std::string name) {
  const std::int32_t start = add_state();
  rules_.push_back({std::move(name), start, add_state()});
  return static_cast<int>(rules_.size()) - 1;
}

void RuleGraph::add_edge(const Edge& edge) {
  if (edges_.size() >= edges_max_) {
    throw Error(ErrorKind::usage, source_ + ": takes more than " + std::to_string(edges_max_) +
                                      " edges of an automaton; use smaller counts and lengths");
  }
  edges_.push_back(edge);
}

void RuleGraph::add_call(std::int32_t from, std::int32_t to, int rule) {
  const auto label = static_cast<std::uint32_t>(rule);
  add_edge({from, to, label, label, Kind::call});
}

void RuleGraph::add(std::int32_t from, std::int32_t to, const Expression& expression) {
  using K = Expression::Kind;
  const std::vector<Expression>& parts = expression.parts;
  switch (expression.kind) {
    case K::chars:
      return add_chars(from, to, expression.chars, spelling_);
    case K::call:
      return add_call(from, to, expression.rule);
    case K::begin:
      return add_edge({from, to, 0, 0, Kind::begin});
    case K::end:
      return add_edge({from, to, 0, 0, Kind::end});
    case K::repeat:
      return add_repeat(from, to, expression);
    case K::choice:
      for (const Expression& part : parts) add(from, to, part);
      return;
    case K::sequence:
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::int32_t next = i + 1 == parts.size() ? to : add_state();
        add(from, next, parts[i]);
        from = next;
      }
      if (parts.empty()) add_empty(from, to);
      return;
  }
}

void RuleGraph::add_repeat(std::int32_t from, std::int32_t to, const Expression& expression) {
  const Expression& part = expression.parts.front();
  for (int i = 0; i < expression.min; ++i) {
    const std::int32_t next = add_state();
    add(from, next, part);
    from = next;
  }
  if (expression.max == Expression::unbounded) {
    // A state of its own: what leads to `from` from elsewhere does not get into the loop.
    const std::int32_t loop = add_state();
    add_empty(from, loop);
    add(loop, loop, part);
    return add_empty(loop, to);
  }
  for (int i = expression.min; i < expression.max; ++i) {
    const std::int32_t next = add_state();
    add_empty(from, to);
    add(from, next, part);
    from = next;
  }
  add_empty(from, to);
}

void RuleGraph::add_chars(std::int32_t from, std::int32_t to, const CharSet& set,
                          Spelling spelling) {
  if (spelling == Spelling::character) {
    for (const auto& [low, high] : set.ranges()) add_bytes(from, to, low, high);
    return;
  }
  if (spelling == Spelling::json && set.either(surrogate_set) == CharSet::all())
    spelling = Spelling::any_json;
  if (set.either(no_text_set) == CharSet::all()) add_edge({from, to, 0, 0, Kind::text});
  const CharSet& raw = spelling == Spelling::utf8 ? raw_in_utf8 : raw_in_json;
  const CharSet direct = set.both(raw).both(ascii_set);
  for (const auto& [low, high] : direct.ranges()) add_bytes(from, to, low, high);
  const CharSet rest = set.both(direct.complement()).both(surrogate_set.complement());
  if (!rest.empty()) add_call(from, to, spelled_rule(rest, spelling));
}

int RuleGraph::spelled_rule(const CharSet& set, Spelling spelling) {
  const auto known = spelled_rules_.find({set, spelling});
  if (known != spelled_rules_.end()) return known->second;
  const int index = add_rule("characters");
  spelled_rules_[{set, spelling}] = index;
  const std::int32_t start = rule(index).start, end = rule(index).end;
  const CharSet& raw = spelling == Spelling::utf8 ? raw_in_utf8 : raw_in_json;
  for (const auto& [low, high] : set.both(raw).ranges()) add_utf8(start, end, low, high);
  if (spelling == Spelling::any_json) {
    add(start, end, any_escape());
  } else {
    for (const auto& [low, high] : set.both(raw.complement()).ranges())
      for (char32_t c = low; c <= high; ++c) add(start, end, Expression::text(escape_of(c)));
  }
  return index;
}

void RuleGraph::add_utf8(std::int32_t from, std::int32_t to, char32_t low, char32_t high) {
  for (const char32_t limit : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (low <= limit && limit < high) {
      add_utf8(from, to, low, limit);
      return add_utf8(from, to, limit + 1, high);
    }
  }
  std::string first, last;
  append_utf8(first, low);
  append_utf8(last, high);
  const std::size_t bytes = first.size();
  // Ranges whose ends differ in a byte before others that do not take all values are cut there.
  for (std::size_t i = 1; i < bytes; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      add_utf8(from, to, low, low | mask);
      return add_utf8(from, to, (low | mask) + 1, high);
    }
    if ((high & mask) != mask) {
      add_utf8(from, to, low, (high & ~mask) - 1);
      return add_utf8(from, to, high & ~mask, high);
    }
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::int32_t next = i + 1 == bytes ? to : add_state();
    add_bytes(from, next, static_cast<unsigned char>(first[i]),
              static_cast<unsigned char>(last[i]));
    from = next;
  }
}

}  // namespace hyb
