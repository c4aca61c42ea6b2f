#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hyb {

/// A set of characters, as an Oniguruma class expression describes it: the intersection (&&) of
/// unions of items and nested sets, possibly negated.
struct CharSet {
  struct Union {
    std::string items;  ///< the content of a PCRE2 class: "a-z\p{L}"
    std::vector<CharSet> nested;

    /// Adds items, or their complement.
    void add(const std::string& more, bool negated);
    void add(CharSet set);
  };
  bool negated = false;
  std::vector<Union> parts;  // their intersection; never empty
};

/// The set of `items`, or its complement.
CharSet set_of(const std::string& items, bool negated);

/// A PCRE2 expression that matches exactly one character of the set.
std::string write_char_set(const CharSet& set);

/// The class items of an escape (s, w or d: space, word, digit); empty for other letters.
std::string items_of_escape(char letter);

/// The class items of `\p{name}`, a general category such as Lu or a script; empty for others.
std::string items_of_property(std::string_view name);

/// A cursor over a pattern; errors quote the pattern.
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

/// Reads a bracketed class of Oniguruma; the reader is at its "[".
ClassText read_class(PatternReader& reader);

struct Property {
  std::string items;
  bool negated;
};

/// Reads the "{name}" or "{^name}" after \p or \P.
Property read_property(PatternReader& reader, bool negated);

/// Reads the rest of an escape for one character, after `letter`, and writes it for PCRE2; valid
/// inside and outside of classes. Code points above ASCII are written "\x{...}".
std::string read_escaped_character(PatternReader& reader, char letter);

/// Translates a pattern from Oniguruma's Ruby syntax to PCRE2 (UTF, UCP, multi-line anchors) so
/// that it matches the same texts. The dialects differ in: `\s` (no U+180E), `\w`, `\b`, `\v`,
/// properties (a script name is the script, not its extensions), class intersections `&&` and
/// nested classes,
/// `{n}?`, `{,n}`, `{n,m}+` (no possessive interval), `(?m)` (dot matches all) and the scope of an
/// option over alternatives. Throws Error(model) that begins with `source` and names the construct
/// for what has no translation (back-references, subroutine calls, conditionals, absent operators,
/// `\G \K \R \X`, octal escapes, and case-insensitive matching of anything but ASCII) and for what
/// no published tokenizer uses: `\B \h`, POSIX brackets, named groups, comments, long names.
std::string translate_pattern(std::string_view oniguruma, std::string_view source);

}  // namespace hyb
