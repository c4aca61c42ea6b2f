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

}  // namespace hyb
