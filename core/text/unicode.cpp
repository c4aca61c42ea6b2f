#include "core/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace hyb {
namespace {

using Kind = Utf8Unit::Kind;

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// Length of a character by its first byte; 0 for a byte that starts none.
std::size_t length_of(unsigned first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

/// The second byte excludes overlong forms, surrogates and values above U+10FFFF.
bool second_fits(unsigned first, unsigned second) {
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

}  // namespace

Utf8Unit read_utf8(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  const std::size_t length = length_of(first);
  if (length == 1) return {Kind::character, 1, first};
  if (length == 0) return {Kind::ill_formed, 1, 0xFFFD};
  char32_t value = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {Kind::incomplete, i, 0xFFFD};
    const unsigned byte = byte_at(text, at + i);
    const bool fits = i == 1 ? second_fits(first, byte) : (byte & 0xC0) == 0x80;
    if (!fits) return {Kind::ill_formed, i, 0xFFFD};
    value = (value << 6) | (byte & 0x3F);
  }
  return {Kind::character, length, value};
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const unsigned first = byte_at(text, at++);
  if (first < 0x80) return first;
  const std::size_t more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t value = first & (0x3FU >> more);
  for (std::size_t i = 0; i < more; ++i) value = (value << 6) | (byte_at(text, at++) & 0x3F);
  return value;
}

char32_t code_point_before(std::string_view text, std::size_t at) {
  do --at;
  while ((byte_at(text, at) & 0xC0) == 0x80);
  return next_code_point(text, at);
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | (code_point >> 12));
    } else {
      put(0xF0 | (code_point >> 18));
      put(0x80 | ((code_point >> 12) & 0x3F));
    }
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t bytes_max = 100;
  if (text.size() <= bytes_max) return std::string(text);
  std::size_t end = bytes_max;
  while (end > 0 && (byte_at(text, end) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

bool is_well_formed(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is mostly ASCII.
    std::uint64_t word = 0;
    if (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080U) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Unit unit = read_utf8(text, at);
    if (unit.kind != Kind::character) return false;
    at += unit.bytes;
  }
  return true;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  pending_.append(bytes);
  std::size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Unit unit = read_utf8(pending_, at);
    if (unit.kind == Utf8Unit::Kind::incomplete) break;
    const bool good = unit.kind == Utf8Unit::Kind::character;
    out += good ? std::string_view(pending_).substr(at, unit.bytes) : replacement_character;
    at += unit.bytes;
  }
  pending_.erase(0, at);
}

void Utf8Stream::flush(std::string& out) {
  if (!pending_.empty()) out += replacement_character;
  pending_.clear();
}

namespace {

utf8proc_category_t category_of(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_between(char32_t code_point, char32_t first, char32_t last) {
  return code_point >= first && code_point <= last;
}

}  // namespace

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || is_between(code_point, 9, 13);
  switch (code_point) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return is_between(code_point, 0x2000, 0x200A);
  }
}

bool is_numeric(char32_t code_point) {
  if (code_point < 0x80) return is_between(code_point, '0', '9');
  const auto category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t code_point) {
  const auto category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(char32_t code_point) {
  if (code_point < 0x80) {
    return is_between(code_point, '!', '/') || is_between(code_point, ':', '@') ||
           is_between(code_point, '[', '`') || is_between(code_point, '{', '~');
  }
  const auto category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t code_point) {
  const auto category = category_of(code_point);
  const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  // Circled and squared letters are symbols (So) with the property Other_Alphabetic.
  const bool framed =
      is_between(code_point, 0x24B6, 0x24E9) || is_between(code_point, 0x1F130, 0x1F149) ||
      is_between(code_point, 0x1F150, 0x1F169) || is_between(code_point, 0x1F170, 0x1F189);
  const bool joiner = code_point == 0x200C || code_point == 0x200D;
  return letter || is_mark(code_point) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || framed || joiner;
}

namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// From utf8proc's properties (Unicode 15) and the Age property; a range may also contain characters
// that were not assigned in 9.0.
constexpr std::array<Range, 44> newer = {
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
     {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},
     {0xCF3, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},
     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x180F, 0x180F},   {0x1ABF, 0x1ACE},
     {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
     {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0xAB69, 0xAB69},   {0x10781, 0x107BA},
     {0x10D24, 0x10D27}, {0x10EAB, 0x10F85}, {0x11070, 0x11074}, {0x110C2, 0x110C2},
     {0x11145, 0x11146}, {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B},
     {0x1145E, 0x1145E}, {0x1182C, 0x1183A}, {0x11930, 0x11A99}, {0x11D31, 0x11F42},
     {0x13440, 0x13455}, {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FF1},
     {0x1CF00, 0x1CF46}, {0x1E030, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}}};

}  // namespace

bool is_newer_than_normalization(char32_t code_point) {
  if (code_point < newer.front().first) return false;
  const auto* range =
      std::lower_bound(newer.begin(), newer.end(), code_point,
                       [](const Range& one, char32_t point) { return one.last < point; });
  return range != newer.end() && range->first <= code_point;
}

}  // namespace hyb
