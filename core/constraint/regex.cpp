#include "core/constraint/regex.h"

#include <optional>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

using X = Expression;

const CharSet digit_set({{'0', '9'}});
const CharSet word_set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const CharSet space_set({{0x09, 0x0D},
                         {' ', ' '},
                         {0xA0, 0xA0},
                         {0x1680, 0x1680},
                         {0x2000, 0x200A},
                         {0x2028, 0x2029},
                         {0x202F, 0x202F},
                         {0x205F, 0x205F},
                         {0x3000, 0x3000},
                         {0xFEFF, 0xFEFF}});
const CharSet line_end_set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});

class RegexReader {
 public:
  RegexReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Expression read() {
    if (!is_well_formed(text_)) fail("is not UTF-8");
    Expression result = choice(0);
    if (at_ < text_.size()) fail("has a ')' without its '('");
    return result;
  }

 private:
  static constexpr int depth_max = 200;
  static constexpr int count_max = 100'000;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::usage, std::string(source_) + ": the regular expression '" +
                                      excerpt(text_) + "' " + what + " (byte " +
                                      std::to_string(at_) + ")");
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Expression choice(int depth) {
    if (depth > depth_max) fail("nests deeper than " + std::to_string(depth_max));
    std::vector<X> parts;
    do {
      std::vector<X> row;
      while (!at_end() && peek() != '|' && peek() != ')') row.push_back(repeated(depth));
      parts.push_back(X::sequence(std::move(row)));
    } while (take("|"));
    return parts.size() == 1 ? std::move(parts.front()) : X::choice(std::move(parts));
  }

  Expression repeated(int depth) {
    X part = atom(depth);
    const bool is_anchor = part.kind == X::Kind::begin || part.kind == X::Kind::end;
    const std::size_t before = at_;
    int min = 0, max = X::unbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take_counts(min, max)) {
      return part;
    }
    if (is_anchor) fail("repeats an anchor");
    if (max != X::unbounded && max < min) fail("has a repetition whose end is below its start");
    if (take("+")) fail("has a possessive repetition, which is not supported");
    take("?");
    if (before < text_.size() && (peek() == '*' || peek() == '+' || peek() == '?'))
      fail("repeats a repetition");
    return X::repeat(std::move(part), min, max);
  }

  bool take_counts(int& min, int& max) {
    if (peek() != '{') return false;
    const std::size_t close = text_.find('}', at_);
    const std::string_view inside =
        close == std::string_view::npos ? "" : text_.substr(at_ + 1, close - at_ - 1);
    const std::size_t comma = inside.find(',');
    const auto from = parse_number<int>(inside.substr(0, comma));
    if (!from || *from < 0) fail("has a '{' that begins no repetition; write \\{");
    min = max = *from;
    if (comma != std::string_view::npos) {
      const std::string_view rest = inside.substr(comma + 1);
      const auto to = parse_number<int>(rest);
      if (!to && !rest.empty()) fail("has a '{' that begins no repetition; write \\{");
      max = to ? *to : X::unbounded;
    }
    if (min > count_max || max > count_max)
      fail("repeats more than " + std::to_string(count_max) + " times");
    at_ = close + 1;
    return true;
  }

  Expression atom(int depth) {
    const char c = peek();
    X anchor;
    if (c == '^' || c == '$') {
      anchor.kind = c == '^' ? X::Kind::begin : X::Kind::end;
      ++at_;
      return anchor;
    }
    if (take("(")) return group(depth);
    if (take("[")) return X::of(char_class());
    if (take(".")) return X::of(line_end_set.complement());
    if (c == '\\') return X::of(escape(false));
    if (c == '*' || c == '+' || c == '?') fail("repeats nothing");
    const char32_t character = next_code_point(text_, at_);
    return X::of(CharSet({{character, character}}));
  }

  Expression group(int depth) {
    if (take("?")) {
      if (take("<=") || take("<!") || take("=") || take("!")) fail("has look-around");
      if (take("P=")) fail("has a back reference");
      if (take("<") || take("P<")) {
        const std::size_t close = text_.find('>', at_);
        if (close == std::string_view::npos) fail("has a group whose name has no end");
        at_ = close + 1;
      } else if (!take(":")) {
        fail("has a kind of group that is not supported");
      }
    }
    X inside = choice(depth + 1);
    if (!take(")")) fail("has a '(' without its ')'");
    return inside;
  }

  CharSet char_class() {
    const bool negated = take("^");
    CharSet set;
    while (!take("]")) {
      if (at_end()) fail("has a '[' without its ']'");
      const CharSet low = class_item();
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') {
        set = set.either(low);
        continue;
      }
      ++at_;
      const CharSet high = class_item();
      const auto single = [](const CharSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
      };
      if (!single(low) || !single(high) || high.ranges()[0].first < low.ranges()[0].first)
        fail("has a range of characters without order");
      set = set.either(CharSet({{low.ranges()[0].first, high.ranges()[0].first}}));
    }
    return negated ? set.complement() : set;
  }

  CharSet class_item() {
    if (at_end()) fail("has a '[' without its ']'");
    if (peek() == '\\') return escape(true);
    const char32_t c = next_code_point(text_, at_);
    return CharSet({{c, c}});
  }

  CharSet escape(bool in_class) {
    ++at_;
    if (at_end()) fail("ends in a backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return digit_set;
      case 'D':
        return digit_set.complement();
      case 'w':
        return word_set;
      case 'W':
        return word_set.complement();
      case 's':
        return space_set;
      case 'S':
        return space_set.complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return one(hex(2));
      case 'u':
        return one(unicode());
      case 'U':
        return one(hex(8));
      case 'c': {
        if (at_end()) fail("ends in an escape");
        return one(static_cast<unsigned char>(text_[at_++]) & 31);
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      default:
        break;
    }
    const bool is_letter = ('a' <= (c | 32) && (c | 32) <= 'z') || ('0' <= c && c <= '9');
    if (is_letter) fail(std::string("has the escape \\") + c + ", which is not supported");
    --at_;
    return one(next_code_point(text_, at_));
  }

  CharSet one(char32_t c) const {
    if (c > CharSet::last) fail("has a character beyond U+10FFFF");
    return CharSet({{c, c}});
  }

  char32_t hex(std::size_t count) {
    char32_t value = 0;
    for (std::size_t i = 0; i < count; ++i, ++at_) {
      const std::size_t digit =
          std::string_view("0123456789abcdef")
              .find(at_end()                           ? 'z'
                    : ('A' <= peek() && peek() <= 'F') ? static_cast<char>(peek() | 32)
                                                       : peek());
      if (digit == std::string_view::npos) fail("has an escape without its hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  char32_t unicode() {
    if (take("{")) {
      const std::size_t close = text_.find('}', at_);
      if (close == std::string_view::npos || close - at_ > 6) fail("has a \\u{ without its }");
      const char32_t value = hex(close - at_);
      ++at_;
      return value;
    }
    const char32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF || !take("\\u")) return high;
    const char32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) fail("has half of a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t at_ = 0;
};

}  // namespace

Expression read_regex(std::string_view text, std::string_view source) {
  return RegexReader(text, source).read();
}

}  // namespace hyb
