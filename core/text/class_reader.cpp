#include "core/text/class_reader.h"

#include <cctype>
#include <cstdio>

#include "core/base/error.h"
#include "core/text/utf8.h"

namespace hyb {
namespace {

constexpr int depth_max = 16;

std::string hexadecimal(char32_t code_point) {
  char text[16];
  std::snprintf(text, sizeof text, "\\x{%x}", static_cast<unsigned>(code_point));
  return text;
}

char32_t read_code_point(PatternReader& reader, std::string_view digits) {
  char32_t value = 0;
  for (const char digit : digits) {
    if (!std::isxdigit(static_cast<unsigned char>(digit))) reader.fail("a bad code point");
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
    value = value * 16 + static_cast<char32_t>(lower <= '9' ? lower - '0' : lower - 'a' + 10);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (digits.empty() || digits.size() > 8 || value > 0x10FFFF || surrogate) {
    reader.fail("a bad code point");
  }
  return value;
}

class ClassReader {
 public:
  explicit ClassReader(PatternReader& reader) : reader_(reader) {}

  ClassText read() {
    CharSet set = read_set(0);
    return {std::move(set), ascii_};
  }

 private:
  CharSet read_set(int depth) {
    if (depth == depth_max) reader_.fail("classes nested too deep");
    CharSet set;
    set.parts.emplace_back();
    reader_.take();
    if (next_is("^")) {
      reader_.take();
      set.negated = true;
    }
    bool first = true;
    while (first || !next_is("]")) {
      if (reader_.done()) reader_.fail("a class is not closed");
      if (first && next_is("]")) reader_.fail("a class that begins with ]; write \\]");
      first = false;
      if (next_is("&&")) {
        reader_.skip(2);
        if (is_empty(set.parts.back())) reader_.fail("nothing before &&");
        set.parts.emplace_back();
      } else {
        read_member(set.parts.back(), depth);
      }
    }
    reader_.take();
    if (is_empty(set.parts.back())) reader_.fail("an empty part of a class");
    return set;
  }

  static bool is_empty(const CharSet::Union& part) {
    return part.items.empty() && part.nested.empty();
  }

  bool next_is(std::string_view text) const { return reader_.rest().starts_with(text); }

  void read_member(CharSet::Union& part, int depth) {
    if (next_is("[:") && read_posix(part)) return;
    if (next_is("[")) return part.add(read_set(depth + 1));
    if (next_is("\\") && read_set_escape(part)) return;
    const std::string from = read_character();
    // A hyphen before the end of the class, or before &&, stands for itself.
    if (!next_is("-") || next_is("-]") || next_is("-&&")) return part.add(from, false);
    reader_.take();
    if (reader_.done()) reader_.fail("a class is not closed");
    if (next_is("[")) reader_.fail("a range that ends in a class");
    part.add(from + "-" + read_character(), false);
  }

  bool read_posix(CharSet::Union& part) {
    const std::string_view rest = reader_.rest();
    const std::size_t end = rest.find(":]");
    if (end == std::string_view::npos) return false;
    std::string_view name = rest.substr(2, end - 2);
    const bool negated = name.starts_with("^");
    if (negated) name.remove_prefix(1);
    const std::string items = items_of_posix(name);
    if (items.empty()) reader_.fail("[:" + std::string(name) + ":] is not supported");
    reader_.skip(end + 2);
    part.add(items, negated);
    ascii_ = false;
    return true;
  }

  /// \s, \p{...} and the like; false where the escape stands for one character.
  bool read_set_escape(CharSet::Union& part) {
    const std::string_view rest = reader_.rest();
    if (rest.size() < 2) reader_.fail("a backslash at the end");
    const char letter = rest[1];
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (lower == 'p') {
      reader_.skip(2);
      const Property property = read_property(reader_, letter == 'P');
      part.add(property.items, property.negated);
      ascii_ = false;
      return true;
    }
    const std::string items = items_of_escape(lower);
    if (items.empty()) return false;
    reader_.skip(2);
    part.add(items, letter != lower);
    if (lower != 's' && lower != 'd') ascii_ = false;
    return true;
  }

  std::string read_character() {
    const char first = reader_.take();
    if (first == '\\') {
      if (reader_.done()) reader_.fail("a backslash at the end");
      const char letter = reader_.take();
      if (letter == 'b') return "\\x08";
      std::string text = read_escaped_character(reader_, letter);
      if (text.starts_with("\\x{")) ascii_ = false;
      return text;
    }
    if (static_cast<unsigned char>(first) >= 0x80) {
      ascii_ = false;
      std::string text(1, first);
      while (!reader_.done() && (static_cast<unsigned char>(reader_.peek()) & 0xC0) == 0x80) {
        text += reader_.take();
      }
      return text;
    }
    const bool letter = std::isalnum(static_cast<unsigned char>(first)) != 0;
    return letter || first == ' ' ? std::string(1, first) : hexadecimal_ascii(first);
  }

  static std::string hexadecimal_ascii(char character) {
    char text[8];
    std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned>(character));
    return text;
  }

  PatternReader& reader_;
  bool ascii_ = true;
};

}  // namespace

void PatternReader::fail(const std::string& what) const {
  throw Error(ErrorKind::model, source_ + ": cannot use this pattern: " + what + " (at byte " +
                                    std::to_string(at_) + " of \"" + excerpt(pattern_) + "\")");
}

ClassText read_class(PatternReader& reader) { return ClassReader(reader).read(); }

Property read_property(PatternReader& reader, bool negated) {
  const std::string_view rest = reader.rest();
  const std::size_t end = rest.find('}');
  if (!rest.starts_with("{") || end == std::string_view::npos) reader.fail("\\p without {name}");
  std::string_view name = rest.substr(1, end - 1);
  if (name.starts_with("^")) {
    negated = !negated;
    name.remove_prefix(1);
  }
  std::string items = items_of_property(name);
  if (items.empty()) reader.fail("the property \"" + std::string(name) + "\" is not supported");
  reader.skip(end + 1);
  return {std::move(items), negated};
}

std::string read_escaped_character(PatternReader& reader, char letter) {
  const std::string_view rest = reader.rest();
  switch (letter) {
    case 'n':
    case 't':
    case 'r':
    case 'f':
    case 'a':
    case 'e':
      return {'\\', letter};
    case 'v':
      return "\\x0b";
    case 'u': {
      const char32_t value = read_code_point(reader, rest.substr(0, 4));
      if (rest.size() < 4) reader.fail("\\u without four digits");
      reader.skip(4);
      return hexadecimal(value);
    }
    case 'x': {
      const bool braces = rest.starts_with("{");
      const std::size_t end = braces ? rest.find('}') : 2;
      if (end == std::string_view::npos || end > rest.size()) reader.fail("a bad \\x");
      const char32_t value =
          read_code_point(reader, braces ? rest.substr(1, end - 1) : rest.substr(0, 2));
      if (!braces && value >= 0x80) reader.fail("\\x80 and above is a byte; write \\x{80}");
      reader.skip(braces ? end + 1 : end);
      return hexadecimal(value);
    }
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(letter);
  if (std::isalnum(byte)) reader.fail("\\" + std::string(1, letter) + " is not supported");
  if (byte < 0x80) return {'\\', letter};
  std::string text(1, letter);
  while (!reader.done() && (static_cast<unsigned char>(reader.peek()) & 0xC0) == 0x80) {
    text += reader.take();
  }
  return text;
}

}  // namespace hyb
