#include "app/ui/sanitizer.h"

#include <algorithm>
#include <utility>

#include "core/text/utf8.h"

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

}  // namespace hyb::app
