#include "core/text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace hyb::jinja {
namespace {

constexpr char32_t replacement = 0xFFFD;

struct Decoded {
  char32_t character;
  std::size_t bytes;
};

Decoded decode(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  utf8proc_int32_t character = -1;
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const auto bytes =
      utf8proc_iterate(data, static_cast<utf8proc_ssize_t>(text.size() - at), &character);
  if (bytes <= 0) return {replacement, 1};
  return {static_cast<char32_t>(character), static_cast<std::size_t>(bytes)};
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
  return decode(text, at).bytes;
}

char32_t decode_character(std::string_view text, std::size_t at) {
  return decode(text, at).character;
}

void append_character(std::string& out, char32_t character) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
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

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Decoded decoded = decode(text, at);
    if (decoded.character == replacement && decoded.bytes == 1) return false;
    at += decoded.bytes;
  }
  return true;
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

bool is_decimal_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
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
  append_character(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  append_character(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const Special* special = special_of(c)) {
    out += special->title;
    return;
  }
  append_character(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
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

std::size_t find_last(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  if (needle.empty()) return text.size();
  // Knuth-Morris-Pratt from the right end.
  const std::size_t size = needle.size();
  const auto mirrored = [&](std::size_t i) { return needle[size - 1 - i]; };
  std::vector<std::uint32_t> border(size, 0);
  for (std::size_t i = 1, matched = 0; i < size; ++i) {
    while (matched > 0 && mirrored(i) != mirrored(matched)) matched = border[matched - 1];
    if (mirrored(i) == mirrored(matched)) ++matched;
    border[i] = static_cast<std::uint32_t>(matched);
  }
  for (std::size_t at = text.size(), matched = 0; at-- > 0;) {
    while (matched > 0 && text[at] != mirrored(matched)) matched = border[matched - 1];
    if (text[at] == mirrored(matched)) ++matched;
    if (matched == size) return at;
  }
  return std::string_view::npos;
}

}  // namespace hyb::jinja
