#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/constraint/grammar.h"
#include "core/constraint/regex.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

using Id = Expressions::Id;

constexpr int pattern_nesting_max = 200;  // of brackets, and of repetitions
constexpr std::size_t gbnf_bytes_max = std::size_t{1} << 20;

/// Reads what regular expressions and GBNF have in common: alternatives, repetition, classes,
/// escapes.
class ExpressionReader {
 public:
  ExpressionReader(std::string_view text, Expressions& expressions)
      : text_(text), expressions_(expressions) {}
  virtual ~ExpressionReader() = default;

 protected:
  [[noreturn]] virtual void fail(const std::string& what) const = 0;
  virtual bool begins_item() const = 0;
  virtual Id item(int depth) = 0;  // what a repetition may follow
  virtual SymbolSet class_item() = 0;
  virtual void skip_space(int /*depth*/) {}
  virtual void end_repetition() {}

  bool at_end() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view word) {
    if (!text_.substr(std::min(at_, text_.size())).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Id choice(int depth) {
    if (depth > pattern_nesting_max)
      fail("it nests deeper than " + std::to_string(pattern_nesting_max));
    std::vector<Id> parts;
    do {
      std::vector<Id> row;
      for (skip_space(depth + 1); begins_item(); skip_space(depth)) row.push_back(repeated(depth));
      parts.push_back(expressions_.sequence(row));
    } while (take("|"));
    return expressions_.choice(std::move(parts));
  }

  Id brackets(int depth) {
    const Id inside = choice(depth + 1);
    if (!take(")")) fail("')' is expected");
    return inside;
  }

  /// After its '['.
  Id char_class() {
    const bool negated = take("^");
    std::vector<SymbolSet::Range> ranges;
    while (!take("]")) {
      const std::vector<SymbolSet::Range> low = class_item().ranges();
      if (peek() != '-' || peek(1) == ']' || peek(1) == '\0') {
        ranges.insert(ranges.end(), low.begin(), low.end());
        continue;
      }
      ++at_;
      const std::vector<SymbolSet::Range> high = class_item().ranges();
      if (low[0].first != low.back().second || high[0].first != high.back().second || high < low)
        fail("a range of characters has no order");
      ranges.push_back({low[0].first, high[0].first});
    }
    const SymbolSet set(std::move(ranges));
    return expressions_.chars(negated ? set.complement() : set);
  }

  /// The character of an escape that both know, after its backslash and letter.
  std::optional<char32_t> escape(char letter) {
    if (letter == 'n') return '\n';
    if (letter == 'r') return '\r';
    if (letter == 't') return '\t';
    if (letter == 'x') return hex(2);
    if (letter == 'u') return hex(4);
    if (letter == 'U') return hex(8);
    if (letter < ' ' || std::isalnum(static_cast<unsigned char>(letter))) return std::nullopt;
    return static_cast<char32_t>(letter);
  }

  char32_t hex(std::size_t digits) {
    const std::string_view text = text_.substr(std::min(at_, text_.size()), digits);
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + digits)
      fail("an escape needs " + std::to_string(digits) + " hexadecimal digits");
    if (value > SymbolSet::last) fail("a character is beyond U+10FFFF");
    at_ += digits;
    return value;
  }

  std::string_view text_;
  Expressions& expressions_;
  std::size_t at_ = 0;

 private:
  Id repeated(int depth) {
    Id part = item(depth);
    for (int operators = 0;; ++operators) {
      if (operators > pattern_nesting_max) fail("repetitions are repeated too often");
      skip_space(depth);
      int min = 0, max = Expressions::unbounded;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        min = max = count();
        if (take(",")) max = peek() == '}' ? Expressions::unbounded : count();
        if (!take("}")) fail("'}' is expected after the counts of a repetition");
        if (max != Expressions::unbounded && max < min) fail("a repetition ends below its start");
      } else if (!take("*")) {
        return part;
      }
      part = expressions_.repeat(part, min, max);
      end_repetition();
    }
  }

  int count() {
    skip_space(0);
    const std::size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    const auto value = parse_number<int>(text_.substr(at_, end - at_));
    if (!value || *value > Expressions::count_max)
      fail("'{' begins a repetition, of counts of at most " +
           std::to_string(Expressions::count_max));
    at_ = end;
    skip_space(0);
    return *value;
  }
};

const SymbolSet digit_set({{'0', '9'}});
const SymbolSet word_set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const SymbolSet line_end_set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
// clang-format off
const SymbolSet space_set({{0x09, 0x0D}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680},
                           {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                           {0x3000, 0x3000}, {0xFEFF, 0xFEFF}});
// clang-format on

class RegexReader : public ExpressionReader {
 public:
  using ExpressionReader::ExpressionReader;

  Id read() {
    if (!is_well_formed(text_)) fail("it is not UTF-8");
    const Id result = choice(0);
    if (!at_end()) fail("a ')' has no '('");
    return result;
  }

 protected:
  [[noreturn]] void fail(const std::string& what) const override {
    throw Error(ErrorKind::usage, expressions_.source() + ": the regular expression '" +
                                      excerpt(text_) + "', byte " + std::to_string(at_) + ": " +
                                      what);
  }

  bool begins_item() const override { return !at_end() && peek() != '|' && peek() != ')'; }

  bool begins_repetition() const { return !at_end() && std::string_view("*+?{").find(peek()) < 4; }

  void end_repetition() override {
    take("?");  // lazy
    if (begins_repetition()) fail("a repetition is repeated, or possessive");
  }

  Id item(int depth) override {
    if (begins_repetition()) fail("nothing is repeated");
    if (peek() == '^' || peek() == '$') {
      const Id anchor = expressions_.one(text_[at_++] == '^' ? text_begin : text_end);
      if (begins_repetition()) fail("an anchor is repeated");
      return anchor;
    }
    if (take("[")) {
      // An empty class in JavaScript, a bracket in Python.
      if (peek(peek() == '^' ? 1 : 0) == ']') fail("a class begins with ']'; write \\]");
      return char_class();
    }
    if (take(".")) return expressions_.chars(line_end_set.complement());
    if (take("\\")) return expressions_.chars(set_of_escape(false));
    if (!take("(")) return expressions_.one(next_code_point(text_, at_));
    if (take("?<=") || take("?<!") || take("?=") || take("?!")) fail("look-around");
    if (take("?<") || take("?P<"))
      at_ = std::min(text_.find('>', at_), text_.size() - 1) + 1;
    else if (!take("?:") && peek() == '?')
      fail("this kind of group is not supported");
    return brackets(depth);
  }

  SymbolSet class_item() override {
    if (at_end()) fail("a '[' has no ']'");
    if (take("\\")) return set_of_escape(true);
    const char32_t c = next_code_point(text_, at_);
    return SymbolSet({{c, c}});
  }

  SymbolSet set_of_escape(bool in_class) {
    if (take("d")) return digit_set;
    if (take("D")) return digit_set.complement();
    if (take("w")) return word_set;
    if (take("W")) return word_set.complement();
    if (take("s")) return space_set;
    if (take("S")) return space_set.complement();
    const char32_t c = character_of_escape(in_class);
    return SymbolSet({{c, c}});
  }

  char32_t character_of_escape(bool in_class) {
    if (at_end()) fail("a backslash is last");
    const char letter = peek();
    if (static_cast<unsigned char>(letter) >= 0x80) return next_code_point(text_, at_);
    ++at_;
    if (letter == 'f') return '\f';
    if (letter == 'v') return '\v';
    if (letter == '0') return 0;
    if (letter == 'b' && in_class) return '\b';
    if (letter == 'c') {
      if (at_end() || !std::isalpha(static_cast<unsigned char>(peek())))
        fail("a \\c needs a letter from A to Z");
      return static_cast<unsigned char>(text_[at_++]) & 31;
    }
    if (letter == 'u' && take("{")) {
      const char32_t value = hex(std::min(text_.find('}', at_), at_ + 7) - at_);
      if (!take("}")) fail("a \\u{ has no }");
      return value;
    }
    const std::optional<char32_t> character = escape(letter);
    if (!character) fail(std::string("the escape \\") + letter + " is not supported");
    const bool is_first_half = letter == 'u' && 0xD800 <= *character && *character <= 0xDBFF;
    if (!is_first_half || !take("\\u")) return *character;
    const char32_t second = hex(4);
    if (second < 0xDC00 || second > 0xDFFF) fail("a surrogate pair is half");
    return 0x10000 + ((*character - 0xD800) << 10) + (second - 0xDC00);
  }
};

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/// Reads the grammar files of llama.cpp.
class GbnfReader : public ExpressionReader {
 public:
  using ExpressionReader::ExpressionReader;

  Grammar read() {
    if (text_.size() > gbnf_bytes_max)
      fail("more than " + std::to_string(gbnf_bytes_max) + " bytes");
    if (!is_well_formed(text_)) fail("not UTF-8");
    skip_space(1);
    while (!at_end()) read_rule();
    if (!defined_["root"]) fail("there is no rule 'root'");
    for (const Grammar::Rule& rule : rules_)
      if (!defined_[rule.name]) fail("the rule '" + rule.name + "' is used, but not defined");
    rules_.push_back({"the grammar", call("root")});
    return Grammar(expressions_, rules_, Grammar::Spelling::utf8);
  }

 protected:
  [[noreturn]] void fail(const std::string& what) const override {
    const auto line = 1 + std::ranges::count(text_.substr(0, at_), '\n');
    throw Error(ErrorKind::usage,
                expressions_.source() + ": line " + std::to_string(line) + ": " + what);
  }

  /// Within brackets, and after '::=' and '|', a row of items goes on in the next line.
  void skip_space(int depth) override {
    while (!at_end()) {
      if (peek() == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::string_view(" \t\r\n").substr(0, depth > 0 ? 4 : 2).find(peek()) < 4)
        ++at_;
      else
        return;
    }
  }

  std::string_view next_name() const {
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  std::string name() {
    const std::string result(next_name());
    if (result.empty())
      fail("the name of a rule is expected, not '" + excerpt(text_.substr(at_)) + "'");
    at_ += result.size();
    return result;
  }

  Id call(const std::string& name) {
    const auto [entry, is_new] = indices_.try_emplace(name, rules_.size());
    if (is_new) rules_.push_back({name, Expressions::nothing});
    return expressions_.one(first_rule + static_cast<char32_t>(entry->second));
  }

  void read_rule() {
    const std::string title = name();
    call(title);
    skip_space(0);
    if (!take("::=")) fail("'::=' is expected after '" + title + "'");
    if (std::exchange(defined_[title], true)) fail("the rule '" + title + "' is defined twice");
    const Id body = choice(0);
    rules_[indices_[title]].body = body;
    // After an empty last alternative the next rule's name is next.
    if (!at_end() && peek() != '\n' && peek() != '\r' && !is_name(peek()))
      fail("unexpected '" + excerpt(text_.substr(at_)) + "'");
    skip_space(1);
  }

  bool begins_item() const override {
    if (peek() == '<' || (peek() == '!' && peek(1) == '<'))
      fail("references to tokens (<...>) are not supported; write their text");
    if (!is_name(peek())) return peek() == '"' || peek() == '[' || peek() == '(' || peek() == '.';
    const std::size_t after = text_.find_first_not_of(" \t", at_ + next_name().size());
    return after == std::string_view::npos || !text_.substr(after).starts_with("::=");
  }

  Id item(int depth) override {
    if (take("(")) return brackets(depth);
    if (take("[")) return char_class();
    if (take(".")) return expressions_.chars(SymbolSet().complement());
    if (!take("\"")) return call(name());
    std::vector<Id> row;
    while (!take("\"")) row.push_back(expressions_.one(character()));
    return expressions_.sequence(row);
  }

  SymbolSet class_item() override {
    const char32_t c = character();
    return SymbolSet({{c, c}});
  }

  char32_t character() {
    if (at_end() || peek() == '\n') fail("a text or a class has no end on its line");
    if (!take("\\")) return next_code_point(text_, at_);
    const char letter = peek();
    ++at_;
    const std::optional<char32_t> character = escape(letter);
    if (!character) fail(std::string("unknown escape \\") + letter);
    return *character;
  }

  std::vector<Grammar::Rule> rules_;
  std::map<std::string, std::size_t> indices_;
  std::map<std::string, bool> defined_;
};

}  // namespace

Id read_regex(std::string_view text, Expressions& expressions, bool search) {
  Id language = RegexReader(text, expressions).read();
  if (search) language = expressions.sequence({Expressions::any, language, Expressions::any});
  return expressions.whole(language);
}

Grammar Grammar::from_gbnf(std::string_view text, const std::string& source) {
  Expressions expressions(source);
  return GbnfReader(text, expressions).read();
}

}  // namespace hyb
