#include <map>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/constraint/grammar.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

using X = Expression;

/// Reads the grammar files of llama.cpp.
class GbnfReader {
 public:
  GbnfReader(std::string_view text, const std::string& source)
      : text_(text), graph_(source, RuleGraph::Spelling::utf8, edges_max) {}

  Grammar read() {
    if (text_.size() > bytes_max) fail("more than " + std::to_string(bytes_max) + " bytes");
    if (!is_well_formed(text_)) fail("not UTF-8");
    skip(true);
    while (!at_end()) read_rule();
    const auto root = rules_.find("root");
    if (root == rules_.end() || !root->second.defined) fail("there is no rule 'root'");
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) fail("the rule '" + name + "' is used, but not defined");
    }
    return Grammar(graph_, root->second.index);
  }

 private:
  static constexpr std::size_t bytes_max = std::size_t{1} << 20;
  static constexpr std::size_t edges_max = 1'000'000;
  static constexpr int depth_max = 200;
  static constexpr int count_max = 100'000;

  struct Rule {
    int index = 0;
    bool defined = false;
  };

  [[noreturn]] void fail(const std::string& what) const {
    std::size_t line = 1;
    for (std::size_t i = 0; i < std::min(at_, text_.size()); ++i) line += text_[i] == '\n';
    throw Error(ErrorKind::usage, graph_.source() + ": line " + std::to_string(line) + ": " + what);
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip(bool lines) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
        ++at_;
      else
        break;
    }
  }
  static bool is_name(char c) {
    return ('a' <= (c | 32) && (c | 32) <= 'z') || ('0' <= c && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name(peek())) ++at_;
    if (at_ == begin) fail("a rule's name is expected, not '" + excerpt(text_.substr(at_)) + "'");
    return std::string(text_.substr(begin, at_ - begin));
  }
  Rule& rule(const std::string& name) {
    const auto [place, is_new] = rules_.try_emplace(name);
    if (is_new) place->second.index = graph_.add_rule(name);
    return place->second;
  }

  void read_rule() {
    const std::string title = name();
    Rule& target = rule(title);
    skip(false);
    if (!take("::=")) fail("'::=' is expected after '" + title + "'");
    if (target.defined) fail("the rule '" + title + "' is defined twice");
    target.defined = true;
    const RuleGraph::Rule place = graph_.rule(target.index);
    skip(true);
    graph_.add(place.start, place.end, choice(0));
    // After an empty last alternative the next rule's name is next.
    if (!at_end() && peek() != '\n' && peek() != '\r' && !is_name(peek()))
      fail("unexpected '" + excerpt(text_.substr(at_)) + "'");
    skip(true);
  }

  Expression choice(int depth) {
    if (depth > depth_max) fail("nests deeper than " + std::to_string(depth_max));
    std::vector<X> parts;
    do {
      skip(true);
      std::vector<X> row;
      while (begins_item()) {
        row.push_back(repeated(depth));
        skip(depth > 0);
      }
      parts.push_back(X::sequence(std::move(row)));
    } while (take("|"));
    return X::choice(std::move(parts));
  }

  bool begins_item() {
    if (peek() == '<' || (peek() == '!' && at_ + 1 < text_.size() && text_[at_ + 1] == '<'))
      fail("references to tokens (<...>) are not supported; write their text");
    // An empty last alternative is followed by the next rule.
    if (is_name(peek())) {
      std::size_t end = at_;
      while (end < text_.size() && is_name(text_[end])) ++end;
      end = text_.find_first_not_of(" \t", end);
      return end == std::string_view::npos || text_.substr(end, 3) != "::=";
    }
    return peek() == '"' || peek() == '[' || peek() == '(' || peek() == '.';
  }

  Expression repeated(int depth) {
    X part = item(depth);
    for (int operators = 0;; ++operators) {
      skip(depth > 0);
      int min = 0, max = X::unbounded;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        min = max = count();
        if (take(",")) {
          skip(false);
          max = peek() == '}' ? X::unbounded : count();
        }
        if (!take("}")) fail("'}' is expected");
        if (max != X::unbounded && max < min) fail("a repetition ends below its start");
      } else {
        return part;
      }
      if (operators == depth_max) fail("repeats repetitions too often");
      part = X::repeat(std::move(part), min, max);
    }
  }

  int count() {
    skip(false);
    std::size_t end = at_;
    while (end < text_.size() && '0' <= text_[end] && text_[end] <= '9') ++end;
    const auto value = parse_number<int>(text_.substr(at_, end - at_));
    if (!value || *value > count_max)
      fail("a repetition needs counts of at most " + std::to_string(count_max));
    at_ = end;
    skip(false);
    return *value;
  }

  Expression item(int depth) {
    if (take("(")) {
      X inside = choice(depth + 1);
      if (!take(")")) fail("')' is expected");
      return inside;
    }
    if (take("[")) return char_class();
    if (take(".")) return X::of(CharSet::all());
    if (!take("\"")) return X::call(rule(name()).index);
    std::vector<X> row;
    while (!take("\"")) {
      const char32_t c = character();
      row.push_back(X::of(CharSet({{c, c}})));
    }
    return X::sequence(std::move(row));
  }

  Expression char_class() {
    const bool negated = take("^");
    std::vector<CharSet::Range> ranges;
    while (!take("]")) {
      const char32_t low = character();
      char32_t high = low;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        high = character();
        if (high < low) fail("a range of characters without order");
      }
      ranges.push_back({low, high});
    }
    CharSet set(std::move(ranges));
    return X::of(negated ? set.complement() : set);
  }

  char32_t character() {
    if (at_end() || peek() == '\n') fail("a text or a class has no end on its line");
    if (!take("\\")) return next_code_point(text_, at_);
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        break;
    }
    if (std::string_view("\\\"[]-^/.").find(c) == std::string_view::npos || c == '\0')
      fail(std::string("unknown escape \\") + c);
    return static_cast<unsigned char>(c);
  }

  char32_t hex(std::size_t digits) {
    const std::string_view text = text_.substr(std::min(at_, text_.size()), digits);
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + digits || value > CharSet::last)
      fail("an escape needs " + std::to_string(digits) + " hexadecimal digits");
    at_ += digits;
    return value;
  }

  std::string_view text_;
  RuleGraph graph_;
  std::map<std::string, Rule> rules_;
  std::size_t at_ = 0;
};

}  // namespace

Grammar Grammar::from_gbnf(std::string_view text, const std::string& source) {
  return GbnfReader(text, source).read();
}

}  // namespace hyb
