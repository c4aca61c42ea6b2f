#include "core/text/pattern_dialect.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/text/char_class.h"
#include "core/text/class_reader.h"
#include "core/text/utf8.h"

namespace hyb {
namespace {

constexpr std::size_t pattern_bytes_max = 64 << 10;
constexpr std::size_t groups_max = 200;

/// Case-blind pairs of letters that are one character's folding as well (U+00DF is "ss", U+FB01 is
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
    std::size_t start = 0;    // where it begins in the output
    bool caseless = false;    // outside of it, to be restored
    std::size_t options = 0;  // (?i) and the like, which reach to the end of the group
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

  /// A character that stands for itself.
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

  /// Takes {n}, {n,}, {n,m} or {,m}; false where the brace begins none of them.
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
      // In Ruby's syntax these repeat the interval, they do not make it possessive or lazy.
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
    if (c == 'b' || c == 'B') return word_boundary(c == 'B');
    if (c == 'A' || c == 'z' || c == 'Z') {
      out_ += {'\\', c};
      return no_atom();
    }
    const std::string character = read_escaped_character(reader_, c);
    if (caseless_ && character.starts_with("\\x{")) reader_.fail("(?i) over a code point");
    atom(character);
  }

  void word_boundary(bool negated) {
    const std::string word = write_char_set(set_of(items_of_escape('w'), false));
    const auto around = [&](const char* behind, const char* ahead) {
      out_.append(behind).append(word).append(")").append(ahead).append(word).append(")");
    };
    out_ += "(?:";
    around("(?<=", negated ? "(?=" : "(?!");
    out_ += '|';
    around("(?<!", negated ? "(?!" : "(?=");
    out_ += ')';
    no_atom();
  }

  void open() {
    const std::string_view rest = reader_.rest();
    if (groups_.size() == groups_max) reader_.fail("groups nested too deep");
    if (rest.starts_with("(?#")) {
      const std::size_t end = rest.find(')');
      if (end == std::string_view::npos) reader_.fail("a comment is not closed");
      reader_.skip(end + 1);
      return;
    }
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
    if (rest.size() > 3 && rest[2] == '<' && std::isalpha(static_cast<unsigned char>(rest[3]))) {
      const std::size_t end = rest.find('>');
      if (end == std::string_view::npos) reader_.fail("a group's name is not closed");
      reader_.skip(end + 1);
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
      // It reaches to the end of the group it stands in, alternatives included.
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
  std::size_t atom_ = 0;     // where the last atom begins in the output
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
