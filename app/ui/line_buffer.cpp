#include "app/ui/line_buffer.h"

#include <utility>

#include "app/ui/text_width.h"
#include "core/text/utf8_stream.h"

namespace hyb::app {
namespace {

bool is_word(char letter) {
  return static_cast<unsigned char>(letter) >= 0x80 || (letter >= '0' && letter <= '9') ||
         (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
}

bool is_space(char letter) { return letter == ' ' || letter == '\t' || letter == '\n'; }

std::string well_formed(std::string_view text) {
  Utf8Stream stream;
  std::string out;
  stream.push(text, out);
  stream.flush(out);
  return out;
}

}  // namespace

void LineBuffer::set(std::string text) {
  text_ = well_formed(text);
  cursor_ = text_.size();
}

void LineBuffer::insert(std::string_view text) {
  const std::string added = well_formed(text);
  text_.insert(cursor_, added);
  cursor_ += added.size();
}

std::size_t LineBuffer::line_begin(std::size_t at) const {
  if (at == 0) return 0;
  const std::size_t found = text_.rfind('\n', at - 1);
  return found == std::string::npos ? 0 : found + 1;
}

std::size_t LineBuffer::line_end(std::size_t at) const {
  const std::size_t found = text_.find('\n', at);
  return found == std::string::npos ? text_.size() : found;
}

std::size_t LineBuffer::word_left() const {
  std::size_t at = cursor_;
  while (at > 0 && !is_word(text_[at - 1])) --at;
  while (at > 0 && is_word(text_[at - 1])) --at;
  return at;
}

std::size_t LineBuffer::word_right() const {
  std::size_t at = cursor_;
  while (at < text_.size() && !is_word(text_[at])) ++at;
  while (at < text_.size() && is_word(text_[at])) ++at;
  return at;
}

void LineBuffer::move_left() {
  if (cursor_ > 0) cursor_ = previous_grapheme(text_, cursor_);
}

void LineBuffer::move_right() {
  if (cursor_ < text_.size()) cursor_ = next_grapheme(text_, cursor_);
}

void LineBuffer::move_word_left() { cursor_ = word_left(); }
void LineBuffer::move_word_right() { cursor_ = word_right(); }

void LineBuffer::move_home() {
  const std::size_t begin = line_begin(cursor_);
  cursor_ = cursor_ == begin && begin > 0 ? line_begin(begin - 1) : begin;
}

void LineBuffer::move_end() {
  const std::size_t end = line_end(cursor_);
  cursor_ = cursor_ == end && end < text_.size() ? line_end(end + 1) : end;
}

void LineBuffer::move_to_column(std::size_t begin, int column) {
  const std::size_t end = line_end(begin);
  cursor_ = begin;
  int passed = 0;
  while (cursor_ < end) {
    const std::size_t next = next_grapheme(text_, cursor_);
    passed += columns(std::string_view(text_).substr(cursor_, next - cursor_));
    if (passed > column) return;
    cursor_ = next;
  }
}

bool LineBuffer::move_up() {
  const std::size_t begin = line_begin(cursor_);
  if (begin == 0) return false;
  const int column = columns(std::string_view(text_).substr(begin, cursor_ - begin));
  move_to_column(line_begin(begin - 1), column);
  return true;
}

bool LineBuffer::move_down() {
  const std::size_t end = line_end(cursor_);
  if (end == text_.size()) return false;
  const std::size_t begin = line_begin(cursor_);
  const int column = columns(std::string_view(text_).substr(begin, cursor_ - begin));
  move_to_column(end + 1, column);
  return true;
}

void LineBuffer::erase_left() {
  if (cursor_ == 0) return;
  const std::size_t begin = previous_grapheme(text_, cursor_);
  text_.erase(begin, cursor_ - begin);
  cursor_ = begin;
}

void LineBuffer::erase_right() {
  if (cursor_ == text_.size()) return;
  text_.erase(cursor_, next_grapheme(text_, cursor_) - cursor_);
}

void LineBuffer::kill(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  killed_ = text_.substr(begin, end - begin);
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void LineBuffer::kill_to_end() {
  const std::size_t end = line_end(cursor_);
  kill(cursor_, end == cursor_ && end < text_.size() ? end + 1 : end);
}

void LineBuffer::kill_to_begin() { kill(line_begin(cursor_), cursor_); }

void LineBuffer::kill_word_left() {
  std::size_t begin = cursor_;
  while (begin > 0 && is_space(text_[begin - 1])) --begin;
  while (begin > 0 && !is_space(text_[begin - 1])) --begin;
  kill(begin, cursor_);
}

void LineBuffer::kill_word_right() { kill(cursor_, word_right()); }

void LineBuffer::yank() { insert(std::string(killed_)); }

}  // namespace hyb::app
