#include "core/text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace hyb::jinja {
namespace {

/// Does what read_utf8 does, but a byte that is no UTF-8 is a character of its own.
Utf8Unit unit_at(std::string_view text, std::size_t at) {
  const Utf8Unit unit = read_utf8(text, at);
  if (unit.kind == Utf8Unit::Kind::character) return unit;
  return {unit.kind, 1, unit.code_point};
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

/// The unconditional mappings of SpecialCasing.txt that published text meets.
struct Special {
  char32_t character;
  std::string_view upper;
  std::string_view title;
};
constexpr std::array<Special, 9> specials{{{0xDF, "SS", "Ss"},
                                           {0x149, "\xCA\xBCN", "\xCA\xBCN"},
                                           {0xFB00, "FF", "Ff"},
                                           {0xFB01, "FI", "Fi"},
                                           {0xFB02, "FL", "Fl"},
                                           {0xFB03, "FFI", "Ffi"},
                                           {0xFB04, "FFL", "Ffl"},
                                           {0xFB05, "ST", "St"},
                                           {0xFB06, "ST", "St"}}};

const Special* special_of(char32_t character) {
  const auto* found = std::find_if(specials.begin(), specials.end(), [&](const Special& special) {
    return special.character == character;
  });
  return found == specials.end() ? nullptr : found;
}

}  // namespace

std::size_t character_bytes(std::string_view text, std::size_t at) {
  return unit_at(text, at).bytes;
}

char32_t decode_character(std::string_view text, std::size_t at) {
  return unit_at(text, at).code_point;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) ++count;
  return count;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alphabetic(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_upper_case(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_lower_case(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const Special* special = special_of(c)) {
    out += special->upper;
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const Special* special = special_of(c)) {
    out += special->title;
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

std::size_t find_first(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (needle.size() > text.size() - from) return std::string_view::npos;
  // memmem is linear; string_view::find is quadratic on hostile input.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace hyb::jinja
