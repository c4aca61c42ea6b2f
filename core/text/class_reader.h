#pragma once

#include <string>
#include <string_view>

#include "core/text/char_class.h"

namespace hyb {

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

}  // namespace hyb
