#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hyb {

/// A set of characters as a class expression of Oniguruma describes it: the intersection (&&) of
/// unions of items and nested sets, possibly negated.
struct CharSet {
  struct Union {
    std::string items;  ///< what may stand between PCRE2's brackets: "a-z\p{L}"
    std::vector<CharSet> nested;

    /// Adds items, or all characters but these.
    void add(const std::string& more, bool negated);
    void add(CharSet set);
  };
  bool negated = false;
  std::vector<Union> parts;  // their intersection; never empty
};

/// The set of `items`, or of all characters but these.
CharSet set_of(const std::string& items, bool negated);

/// A PCRE2 expression that matches exactly one character of the set.
std::string write_char_set(const CharSet& set);

/// What an escape (s, w, d or h: space, word, digit, hexadecimal digit) means inside a class;
/// empty for other letters.
std::string items_of_escape(char letter);

/// What `\p{name}` means inside a class; empty where the name is not known.
std::string items_of_property(std::string_view name);

/// What `[:name:]` means inside a class; empty where the name is not known.
std::string items_of_posix(std::string_view name);

/// Walks through a pattern; errors quote it.
class PatternReader {
 public:
  PatternReader(std::string_view pattern, std::string source)
      : pattern_(pattern), source_(std::move(source)) {}

  bool done() const { return at_ == pattern_.size(); }
  char peek() const { return pattern_[at_]; }
  char take() { return pattern_[at_++]; }
  void skip(std::size_t bytes) { at_ += bytes; }
  std::string_view rest() const { return pattern_.substr(at_); }

  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string_view pattern_;
  std::string source_;
  std::size_t at_ = 0;
};

struct ClassText {
  CharSet set;
  bool ascii;  ///< only single ASCII characters and ranges of them, and \s and \d
};

/// Reads a bracketed class of Oniguruma, the reader standing at its "[".
ClassText read_class(PatternReader& reader);

struct Property {
  std::string items;
  bool negated;
};

/// Reads "{name}" or "{^name}" behind \p or \P.
Property read_property(PatternReader& reader, bool negated);

/// Reads the rest of an escape that stands for one character, behind `letter`, and writes it for
/// PCRE2; valid inside and outside of classes. Code points past ASCII are written "\x{...}".
std::string read_escaped_character(PatternReader& reader, char letter);

/// Rewrites a pattern from Oniguruma's Ruby syntax to PCRE2 (UTF, UCP, multi-line anchors) such
/// that it matches the same texts. The dialects differ in: `\s` (no U+180E), `\w`, `\h`, `\v`,
/// `\b`, properties (a script name is the script, not its extensions; long category names), POSIX
/// brackets, class intersections `&&` and nested classes, `{n}?`, `{,n}`, `{n,m}+` (no possessive
/// interval), `(?m)` (dot matches all) and an option's reach over alternatives. Throws Error(model)
/// beginning with `source` and naming the construct for what has no translation: back-references,
/// subroutine calls, conditionals, absent operators, `\G \K \R \X`, octal escapes, and case-blind
/// matching of anything but ASCII.
std::string translate_pattern(std::string_view oniguruma, std::string_view source);

}  // namespace hyb
