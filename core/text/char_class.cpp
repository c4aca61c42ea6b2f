#include "core/text/char_class.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace hyb {
namespace {

using Name = std::pair<std::string_view, std::string_view>;

constexpr std::string_view any_character = R"([\x{0}-\x{10ffff}])";
constexpr std::string_view white_space =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// Names in lower case, without spaces, hyphens and underscores: they do not count.
constexpr std::array<Name, 38> category_names = {{
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
    {"any", "Any"},
}};

// Scripts that PCRE2 and Oniguruma spell the same; Han was compared with Oniguruma by character.
constexpr std::array<std::string_view, 24> scripts = {
    "arabic",   "armenian", "bengali",  "bopomofo", "common",  "cyrillic", "devanagari", "ethiopic",
    "georgian", "greek",    "gujarati", "gurmukhi", "han",     "hangul",   "hebrew",     "hiragana",
    "katakana", "khmer",    "lao",      "latin",    "myanmar", "tamil",    "telugu",     "thai",
};

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char letter : name) {
    if (letter == ' ' || letter == '-' || letter == '_') continue;
    plain += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return plain;
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
      return std::string(white_space);
    case 'w':
      return std::string(word);
    case 'd':
      return property("Nd");
    case 'h':
      return "0-9a-fA-F";
    default:
      return "";
  }
}

std::string items_of_property(std::string_view name) {
  const std::string plain = plain_name(name);
  for (const auto& [long_name, short_name] : category_names) {
    if (plain == long_name || plain == plain_name(short_name)) return property(short_name);
  }
  if (std::find(scripts.begin(), scripts.end(), plain) != scripts.end()) {
    return property("sc:" + plain);
  }
  if (plain == "whitespace") return std::string(white_space);
  if (plain == "alphabetic") return property("Alphabetic");
  if (plain == "uppercase") return property("Uppercase");
  if (plain == "lowercase") return property("Lowercase");
  return items_of_posix(plain);
}

std::string items_of_posix(std::string_view name) {
  if (name == "alpha") return property("Alphabetic");
  if (name == "digit") return property("Nd");
  if (name == "alnum") return property("Alphabetic") + property("Nd");
  if (name == "upper") return property("Uppercase");
  if (name == "lower") return property("Lowercase");
  if (name == "space") return std::string(white_space);
  if (name == "word") return std::string(word);
  if (name == "punct") return property("P") + "$+<=>^`|~";
  if (name == "cntrl") return property("Cc");
  if (name == "xdigit") return "0-9a-fA-F";
  return "";
}

}  // namespace hyb
