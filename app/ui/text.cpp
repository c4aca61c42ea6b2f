#include "app/ui/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace hyb::app {

bool is_unsafe(char32_t code_point) {
  if (code_point < 0x20) return code_point != '\n' && code_point != '\t';
  if (code_point >= 0x7F && code_point <= 0x9F) return true;
  return (code_point >= 0x202A && code_point <= 0x202E) ||
         (code_point >= 0x2066 && code_point <= 0x2069);
}

void Sanitizer::filter(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code_point = next_code_point(text, at);
    if (std::exchange(carriage_return_, code_point == '\r') && code_point != '\n') {
      out += replacement_character;
    }
    if (carriage_return_) continue;
    out += is_unsafe(code_point) ? replacement_character : text.substr(begin, at - begin);
  }
}

std::string Sanitizer::push(std::string_view chunk) {
  std::string whole;
  stream_.push(chunk, whole);
  std::string out;
  filter(whole, out);
  return out;
}

std::string Sanitizer::flush() {
  std::string whole;
  stream_.flush(whole);
  std::string out;
  filter(whole, out);
  if (std::exchange(carriage_return_, false)) out += replacement_character;
  return out;
}

std::string sanitized(std::string_view text) {
  Sanitizer sanitizer;
  std::string out = sanitizer.push(text);
  return out += sanitizer.flush();
}

std::string sanitized_line(std::string_view text) {
  std::string out = sanitized(text);
  std::replace_if(
      out.begin(), out.end(), [](char letter) { return letter == '\n' || letter == '\t'; }, ' ');
  return out;
}

namespace {

constexpr char32_t emoji_presentation = 0xFE0F;

bool is_regional_indicator(char32_t code_point) {
  return code_point >= 0x1F1E6 && code_point <= 0x1F1FF;
}

int grapheme_columns(std::string_view grapheme) {
  int widest = 0;
  int characters = 0;
  bool is_wide = false;
  for (std::size_t at = 0; at < grapheme.size(); ++characters) {
    const char32_t code_point = next_code_point(grapheme, at);
    widest = std::max(widest, utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point)));
    is_wide = is_wide || code_point == emoji_presentation ||
              (characters > 0 && is_regional_indicator(code_point));
  }
  return is_wide && widest > 0 ? 2 : widest;
}

}  // namespace

std::size_t next_grapheme(std::string_view text, std::size_t at) {
  utf8proc_int32_t memory = 0;
  auto before = static_cast<utf8proc_int32_t>(next_code_point(text, at));
  while (at < text.size()) {
    std::size_t after = at;
    const auto code_point = static_cast<utf8proc_int32_t>(next_code_point(text, after));
    if (utf8proc_grapheme_break_stateful(before, code_point, &memory) != 0) break;
    before = code_point;
    at = after;
  }
  return at;
}

std::size_t previous_grapheme(std::string_view text, std::size_t at) {
  // Whether two characters belong together depends on what precedes them, so this starts from
  // a sure boundary: a line break, or a run of ASCII, or far enough away.
  constexpr std::size_t reach = 256;
  std::size_t start = at - 1;
  while (start > 0 && at - start < reach) {
    const auto here = static_cast<unsigned char>(text[start]);
    const auto before = static_cast<unsigned char>(text[start - 1]);
    if (here < 0x80 && before < 0x80 && !(before == '\r' && here == '\n')) break;
    --start;
  }
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
  for (;;) {
    const std::size_t end = next_grapheme(text, start);
    if (end >= at) return start;
    start = end;
  }
}

int columns(std::string_view text) {
  int sum = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_grapheme(text, at);
    sum += grapheme_columns(text.substr(at, end - at));
    at = end;
  }
  return sum;
}

std::string cut_to_columns(std::string_view text, int columns_max) {
  constexpr std::string_view dots = "...";
  if (columns(text) <= columns_max) return std::string(text);
  const int room = columns_max - static_cast<int>(dots.size());
  if (room <= 0)
    return std::string(dots.substr(0, static_cast<std::size_t>(std::max(columns_max, 0))));
  std::size_t end = 0;
  for (int used = 0; end < text.size();) {
    const std::size_t next = next_grapheme(text, end);
    used += grapheme_columns(text.substr(end, next - end));
    if (used > room) break;
    end = next;
  }
  return std::string(text.substr(0, end)).append(dots);
}

}  // namespace hyb::app
