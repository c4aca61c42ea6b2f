#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;
struct List;

// Shared by str methods and text filters. All operate on characters and keep sources.

/// str.strip of white space, or of `characters`, at the chosen ends.
struct StripEnds {
  bool left = true;
  bool right = true;
};
Text strip(Runtime& runtime, const Text& text, std::optional<Text> characters, StripEnds ends = {});

/// Up to `count` replacements; all if it is negative.
struct Replacement {
  Text old;
  Text fresh;
  std::int64_t count = -1;
};
Text replace(Runtime& runtime, const Text& text, const Replacement& replacement);

/// str.split and str.rsplit: at runs of white space without a separator. Up to `splits` cuts; any
/// number if it is negative. Throws Fault for an empty separator.
struct Split {
  std::optional<Text> separator{};
  std::int64_t splits = -1;
  bool from_right = false;
};
List& split(Runtime& runtime, const Text& text, const Split& how);

/// str.splitlines, with all of Python's line ends.
std::vector<Text> split_lines(Runtime& runtime, const Text& text, bool keep_ends);

Text join(Runtime& runtime, const Text& separator, const List& parts);

Text upper(Runtime& runtime, const Text& text);
Text lower(Runtime& runtime, const Text& text);
Text swap_case(Runtime& runtime, const Text& text);
/// The first character in title case, the others in lower case.
Text capitalize(Runtime& runtime, const Text& text);
/// str.title: each run of letters capitalised.
Text title(Runtime& runtime, const Text& text);
/// Jinja's title filter: words start after white space and -({[<.
Text title_words(Runtime& runtime, const Text& text);

/// Spaces (or `fill`) on both sides of the text.
struct Padding {
  std::size_t left = 0;
  std::size_t right = 0;
  char fill = ' ';
};
Text pad(Runtime& runtime, const Text& text, const Padding& padding);

}  // namespace hyb::jinja
