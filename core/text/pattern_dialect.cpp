#include "core/text/pattern_dialect.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

constexpr std::string_view any_character = R"([\x{0}-\x{10ffff}])";
constexpr std::string_view white_space_class =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view word_members = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

constexpr std::array<std::string_view, 37> categories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

// Scripts that PCRE2 and Oniguruma spell the same; Han was compared with Oniguruma for every
// character.
constexpr std::array<std::string_view, 24> scripts = {
    "arabic",   "armenian", "bengali",  "bopomofo", "common",  "cyrillic", "devanagari", "ethiopic",
    "georgian", "greek",    "gujarati", "gurmukhi", "han",     "hangul",   "hebrew",     "hiragana",
    "katakana", "khmer",    "lao",      "latin",    "myanmar", "tamil",    "telugu",     "thai",
};

std::string in_lower_case(std::string_view name) {
  std::string lower;
  for (const char letter : name) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return lower;
}

std::string property(std::string_view name) { return "\\p{" + std::string(name) + "}"; }

bool is_one_property(const std::string& items) {
  return items.starts_with("\\p{") && items.find('}') == items.size() - 1;
}

std::string write_union(const CharSet::Union& part) {
  if (part.nested.empty()) return "[" + part.items + "]";
  std::string text = "(?:";
  if (!part.items.empty()) text += "[" + part.items + "]|";
  for (const CharSet& set : part.nested) text += write_char_set(set) + "|";
  text.back() = ')';
  return text;
}

}  // namespace

void CharSet::Union::add(const std::string& more, bool negated) {
  if (!negated) {
    items += more;
  } else if (is_one_property(more)) {
    items += "\\P" + more.substr(2);
  } else {
    nested.push_back(set_of(more, true));
  }
}

void CharSet::Union::add(CharSet set) {
  const bool plain = !set.negated && set.parts.size() == 1 && set.parts[0].nested.empty();
  if (plain) {
    items += set.parts[0].items;
  } else {
    nested.push_back(std::move(set));
  }
}

CharSet set_of(const std::string& items, bool negated) { return {negated, {{items, {}}}}; }

std::string write_char_set(const CharSet& set) {
  const bool plain = set.parts.size() == 1 && set.parts[0].nested.empty();
  if (plain) return (set.negated ? "[^" : "[") + set.parts[0].items + "]";
  std::string all;
  for (std::size_t i = 0; i + 1 < set.parts.size(); ++i) {
    all += "(?=" + write_union(set.parts[i]) + ")";
  }
  all += write_union(set.parts.back());
  if (!set.negated) return set.parts.size() == 1 ? all : "(?:" + all + ")";
  return "(?:(?!" + all + ")" + std::string(any_character) + ")";
}

std::string items_of_escape(char letter) {
  switch (letter) {
    case 's':
      return std::string(white_space_class);
    case 'w':
      return std::string(word_members);
    case 'd':
      return property("Nd");
    default:
      return "";
  }
}

std::string items_of_property(std::string_view name) {
  const std::string lower = in_lower_case(name);
  for (const std::string_view category : categories) {
    if (lower == in_lower_case(category)) return property(category);
  }
  const bool is_script = std::find(scripts.begin(), scripts.end(), lower) != scripts.end();
  return is_script ? property("sc:" + lower) : "";
}

namespace {

constexpr int group_depth_max = 16;

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
    if (depth == group_depth_max) reader_.fail("classes nested too deep");
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
    if (next_is("[:")) reader_.fail("[:...:] is not supported");
    if (next_is("[")) return part.add(read_set(depth + 1));
    if (next_is("\\") && read_set_escape(part)) return;
    const std::string from = read_character();
    // A hyphen before the end of the class, or before &&, is literal.
    if (!next_is("-") || next_is("-]") || next_is("-&&")) return part.add(from, false);
    reader_.take();
    if (reader_.done()) reader_.fail("a class is not closed");
    if (next_is("[")) reader_.fail("a range that ends in a class");
    part.add(from + "-" + read_character(), false);
  }

  /// \s, \p{...} and the like; false for an escape of one character.
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

namespace {

constexpr std::size_t pattern_bytes_max = 64 << 10;
constexpr std::size_t groups_max = 200;

/// Pairs of letters that are also the case folding of one character (U+00DF is "ss", U+FB01 is
/// "fi"): Oniguruma matches that character, PCRE2 does not.
constexpr std::string_view folded_pairs[] = {"ss", "ff", "fi", "fl", "st"};

class Translator {
 public:
  Translator(std::string_view in, std::string_view source) : reader_{in, std::string(source)} {}

  std::string translate() {
    groups_.emplace_back();
    while (!reader_.done()) step();
    if (groups_.size() != 1) reader_.fail("a group is not closed");
    close_options();
    return std::move(out_);
  }

 private:
  struct Group {
    std::size_t start = 0;    // its offset in the output
    bool caseless = false;    // outside of it, to be restored
    std::size_t options = 0;  // (?i) and the like, which last until the end of the group
  };

  void step() {
    const char c = reader_.peek();
    if (c == '*' || c == '+' || c == '?') return quantifier();
    if (c == '{' && interval()) return;
    if (c == '(') return open();
    if (c == ')') return close();
    if (c == '\\') return escape();
    if (c == '[') {
      const ClassText set = read_class(reader_);
      if (caseless_ && !set.ascii) reader_.fail("(?i) over a class that is not plain ASCII");
      return atom(write_char_set(set.set));
    }
    reader_.take();
    if (c == '|' || c == '^' || c == '$') {
      out_ += c;
      return no_atom();
    }
    if (c == '.') return atom(".");
    literal(c);
  }

  /// A literal character.
  void literal(char first) {
    std::string text(1, first);
    while (!reader_.done() && (static_cast<unsigned char>(reader_.peek()) & 0xC0) == 0x80) {
      text += reader_.take();
    }
    if (caseless_) {
      if (text.size() > 1) reader_.fail("(?i) over \"" + text + "\", which is not ASCII");
      const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(first)));
      const std::string pair = {last_letter_, lower};
      if (std::find(std::begin(folded_pairs), std::end(folded_pairs), pair) !=
          std::end(folded_pairs)) {
        reader_.fail("(?i) over \"" + pair + "\", which is also one character's folding");
      }
      atom(quoted(text));
      last_letter_ = lower;
      return;
    }
    atom(quoted(text));
  }

  static std::string quoted(const std::string& text) {
    constexpr std::string_view special = R"(\^$.[]|()?*+{})";
    return special.find(text[0]) == std::string_view::npos ? text : "\\" + text;
  }

  void atom(const std::string& text) {
    atom_ = out_.size();
    out_ += text;
    repeatable_ = true;
    last_letter_ = 0;
  }

  void no_atom() {
    repeatable_ = false;
    last_letter_ = 0;
  }

  void quantifier() {
    if (!repeatable_) reader_.fail("a quantifier without something to repeat");
    out_ += reader_.take();
    if (!reader_.done() && (reader_.peek() == '?' || reader_.peek() == '+')) out_ += reader_.take();
    no_atom();
  }

  /// Reads {n}, {n,}, {n,m} or {,m}; false when the brace starts none of them.
  bool interval() {
    const std::string_view rest = reader_.rest();
    const std::size_t end = rest.find('}');
    if (end == std::string_view::npos) return false;
    const std::string_view inner = rest.substr(1, end - 1);
    const std::size_t comma = inner.find(',');
    const std::string low(inner.substr(0, comma));
    const std::string high(comma == std::string_view::npos ? low : inner.substr(comma + 1));
    const auto digits = [](const std::string& text) {
      return text.size() <= 5 &&
             std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    if ((low.empty() && high.empty()) || !digits(low) || !digits(high)) return false;
    if (!repeatable_) reader_.fail("a quantifier without something to repeat");
    reader_.skip(end + 1);
    out_ += "{" + (low.empty() ? "0" : low);
    if (comma != std::string_view::npos) out_ += "," + high;
    out_ += "}";
    const char suffix = reader_.done() ? '\0' : reader_.peek();
    const bool exact = comma == std::string_view::npos;
    if (suffix == '?' && !exact) {
      out_ += reader_.take();
    } else if (suffix == '+' || suffix == '?') {
      // In Ruby's syntax these repeat the interval instead of making it possessive or lazy.
      reader_.take();
      out_.insert(atom_, "(?:");
      out_ += std::string(")") + suffix;
    }
    no_atom();
    return true;
  }

  void escape() {
    reader_.take();
    if (reader_.done()) reader_.fail("a backslash at the end");
    const char c = reader_.take();
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (const std::string items = items_of_escape(lower); !items.empty()) {
      if (caseless_ && lower != 's' && lower != 'd')
        reader_.fail("(?i) over \\" + std::string(1, c));
      return atom(write_char_set(set_of(items, c != lower)));
    }
    if (lower == 'p') {
      if (caseless_) reader_.fail("(?i) over a property");
      const Property property = read_property(reader_, c == 'P');
      return atom(write_char_set(set_of(property.items, property.negated)));
    }
    if (c == 'A' || c == 'z' || c == 'Z') {
      out_ += {'\\', c};
      return no_atom();
    }
    if (c == 'b') {  // of words as \w has them
      const std::string word = write_char_set(set_of(items_of_escape('w'), false));
      out_ += "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
      return no_atom();
    }
    const std::string character = read_escaped_character(reader_, c);
    if (caseless_ && character.starts_with("\\x{")) reader_.fail("(?i) over a code point");
    atom(character);
  }

  void open() {
    const std::string_view rest = reader_.rest();
    if (groups_.size() == groups_max) reader_.fail("groups nested too deep");
    for (const std::string_view opener : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!rest.starts_with(opener)) continue;
      reader_.skip(opener.size());
      return open_group(opener);
    }
    if (!rest.starts_with("(?")) {
      if (rest.starts_with("(*")) reader_.fail("(* is not supported");
      reader_.skip(1);
      return open_group("(?:");
    }
    options(rest);
  }

  void open_group(std::string_view opener) {
    groups_.push_back({out_.size(), caseless_, 0});
    out_ += opener;
    no_atom();
  }

  /// (?im-im) and (?im-im:...): i ignores case, m lets the dot match a newline (PCRE2's s).
  void options(std::string_view rest) {
    bool on = true;
    bool caseless = caseless_;
    std::string opener = "(?";
    std::size_t i = 2;
    for (; i < rest.size() && rest[i] != ')' && rest[i] != ':'; ++i) {
      if (rest[i] == '-' && on) {
        on = false;
      } else if (rest[i] == 'i') {
        caseless = on;
      } else if (rest[i] != 'm') {
        reader_.fail("\"" + std::string(rest.substr(0, i + 1)) + "\" is not supported");
      }
      opener += rest[i] == 'm' ? 's' : rest[i];
    }
    if (i == rest.size()) reader_.fail("a group is not closed");
    reader_.skip(i + 1);
    if (rest[i] == ':') {
      open_group(opener + ":");
    } else {
      // It lasts until the end of the enclosing group, alternatives included.
      out_ += opener + ":";
      ++groups_.back().options;
      no_atom();
    }
    caseless_ = caseless;
  }

  void close() {
    if (groups_.size() == 1) reader_.fail("a closing parenthesis without its group");
    reader_.take();
    close_options();
    const Group group = groups_.back();
    groups_.pop_back();
    out_ += ')';
    caseless_ = group.caseless;
    atom_ = group.start;
    repeatable_ = true;
    last_letter_ = 0;
  }

  void close_options() { out_.append(groups_.back().options, ')'); }

  PatternReader reader_;
  std::string out_;
  std::vector<Group> groups_;
  std::size_t atom_ = 0;     // offset of the last atom in the output
  bool repeatable_ = false;  // a quantifier may follow
  bool caseless_ = false;
  char last_letter_ = 0;  // the last literal, in lower case, while case is ignored
};

}  // namespace

std::string translate_pattern(std::string_view oniguruma, std::string_view source) {
  if (oniguruma.size() > pattern_bytes_max || !is_well_formed(oniguruma)) {
    throw Error(ErrorKind::model, std::string(source) +
                                      ": a pattern is UTF-8 of at most 65536 bytes, this one has " +
                                      std::to_string(oniguruma.size()));
  }
  return Translator(oniguruma, source).translate();
}

}  // namespace hyb
