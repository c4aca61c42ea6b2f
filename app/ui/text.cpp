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

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view three = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < three.size() ? static_cast<unsigned char>(three[i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out += i <= three.size() ? digits[bits >> (18 - 6 * i) & 63U] : '=';
  }
  return out;
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

WordWrap::WordWrap(std::string prefix, int column) : prefix_(std::move(prefix)), column_(column) {
  std::string visible = prefix_;
  for (std::size_t at = visible.find('\x1b'); at < visible.size(); at = visible.find('\x1b'))
    visible.erase(at, visible.find('m', at) + 1 - at);
  indent_ = columns(visible);
}

void WordWrap::place_word() {
  if (word_.empty()) return;
  const int needed = spaces_columns_ + word_columns_;
  if (is_long_ || column_ <= indent_ || column_ + needed <= columns_) {
    out_ += spaces_ + word_;
    column_ += needed;
    while (column_ > columns_) column_ -= columns_;
  } else {
    out_.append("\n").append(prefix_).append(word_);
    column_ = indent_ + word_columns_;
  }
  word_.clear();
  spaces_.clear();
  word_columns_ = spaces_columns_ = 0;
}

void WordWrap::take(std::string_view grapheme) {
  constexpr int tab_columns = 8;
  if (is_escape_ || grapheme == "\x1b") {
    is_escape_ = !grapheme.starts_with('m');  // a combining character may follow it
    escapes_ += grapheme;
    // One that ends what began belongs to what is before it.
    if (escapes_ == "\x1b[m") word_ += std::exchange(escapes_, {});
    return;
  }
  if (grapheme == "\n" || grapheme == " " || grapheme == "\t") {
    place_word();
    is_long_ = false;
  }
  if (grapheme == "\n") {
    out_ += (column_ + spaces_columns_ <= columns_ ? spaces_ : "") + '\n';
    spaces_.clear();
    column_ = spaces_columns_ = 0;
  } else if (grapheme == " " || grapheme == "\t") {
    const int at = column_ + spaces_columns_;
    spaces_ += grapheme;
    spaces_columns_ += grapheme == " " ? 1 : tab_columns - at % tab_columns;
  } else {
    const int width = grapheme_columns(grapheme);
    if (width > 1 || is_wide_) place_word();
    is_wide_ = width > 1;
    word_.append(std::exchange(escapes_, {})).append(grapheme);
    word_columns_ += width;
    is_long_ = is_long_ || word_columns_ + indent_ > columns_;
    if (is_long_) place_word();
  }
}

std::string WordWrap::push(std::string_view text, int columns) {
  columns_ = std::max(columns, 1);
  rest_ += text;
  std::size_t at = 0;
  while (at < rest_.size()) {
    const std::size_t end = next_grapheme(rest_, at);
    const std::string_view grapheme = std::string_view(rest_).substr(at, end - at);
    if (end == rest_.size() && grapheme != "\n" && grapheme != " " && grapheme != "\t") break;
    take(grapheme);
    at = end;
  }
  rest_.erase(0, at);
  return std::exchange(out_, {});
}

std::string WordWrap::flush() {
  if (!rest_.empty()) take(std::exchange(rest_, {}));
  word_ += std::exchange(escapes_, {});
  place_word();
  column_ += std::exchange(spaces_columns_, 0);
  return std::exchange(out_, {}) + std::exchange(spaces_, {});
}

namespace {

/// Returns where a wrapped line continues: after the last gap of two spaces in its first half, else
/// where it begins.
int hanging_indent(std::string_view line, int columns_max) {
  std::size_t hang = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t most = std::min(line.size(), static_cast<std::size_t>(columns_max / 2));
  for (std::size_t i = hang + 2; i < most; ++i) {
    if (line[i] != ' ' && line.substr(i - 2, 2) == "  ") hang = i;
  }
  const int indent = columns(line.substr(0, hang));
  return indent > columns_max / 2 ? 0 : indent;
}

}  // namespace

std::string wrapped(std::string_view text, int columns_max, int column) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const auto indent = static_cast<std::size_t>(hanging_indent(line, columns_max));
    WordWrap wrap(std::string(indent, ' '), column);
    out += wrap.push(line, columns_max);
    out += wrap.flush();
    if (line.size() < text.size()) out += '\n';
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    column = 0;
  }
  return out;
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
