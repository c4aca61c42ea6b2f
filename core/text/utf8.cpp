#include "core/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace hyb {
namespace {

using Kind = Utf8Unit::Kind;

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// Bytes of a character by its first byte; 0 where none begins so.
std::size_t length_of(unsigned first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

/// The second byte decides about overlong forms, surrogates and values past U+10FFFF.
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

}  // namespace hyb
