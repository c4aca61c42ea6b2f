#include "app/ui/editing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

#include "app/ui/text.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

constexpr std::string_view block_mark = "\"\"\"";

std::string_view without_space_at_end(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::optional<Entry> finish_marked(std::string_view text) {
  text = without_space_at_end(text);
  if (text.size() < 2 * block_mark.size() || !text.ends_with(block_mark)) return std::nullopt;
  text.remove_prefix(block_mark.size());
  text.remove_suffix(block_mark.size());
  // The marks may be on lines of their own.
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return Entry{std::string(text), true};
}

}  // namespace

std::optional<Entry> finish_entry(std::string_view text) {
  if (text.starts_with(block_mark)) return finish_marked(text);
  if (text.ends_with('\\')) return std::nullopt;
  return Entry{std::string(text)};
}

std::string continued(std::string text) {
  if (text.ends_with('\\') && !text.starts_with(block_mark)) text.pop_back();
  return text += '\n';
}

std::string as_entry(const std::string& text) {
  const bool is_plain = !text.ends_with('\\') && !text.starts_with(block_mark);
  const bool can_be_marked = text.find(block_mark) == std::string::npos && !text.ends_with('"');
  if (is_plain || !can_be_marked) return text;
  return std::string(block_mark) + '\n' + text + '\n' + std::string(block_mark);
}

namespace {

constexpr std::size_t file_bytes_max = std::size_t{4} << 20;

// Non-blocking: a FIFO in the file's place must not make us wait.
Descriptor open_file(const std::filesystem::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR));
}

std::string encoded(std::string_view entry) {
  std::string line;
  for (const char letter : entry) {
    if (letter == '\\') {
      line += "\\\\";
    } else if (letter == '\n') {
      line += "\\n";
    } else {
      line += letter;
    }
  }
  return line += '\n';
}

std::string decoded(std::string_view line) {
  std::string entry;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool is_escape = line[at] == '\\' && at + 1 < line.size();
    if (is_escape) ++at;
    entry += is_escape && line[at] == 'n' ? '\n' : line[at];
  }
  return entry;
}

/// The end of the file, or the reason why it cannot be read.
std::string read_tail(const std::filesystem::path& path, std::string& text) {
  const Descriptor file = open_file(path, O_RDONLY);
  struct stat about {};
  if (!file.is_open()) return errno == ENOENT ? "" : std::strerror(errno);
  if (::fstat(file.number(), &about) != 0) return std::strerror(errno);
  if (!S_ISREG(about.st_mode)) return "not a regular file";
  const auto size = static_cast<std::size_t>(about.st_size);
  const std::size_t begin = size - std::min(size, file_bytes_max);
  text.resize(size - begin);
  const ReadResult read = read_at(file.number(), begin, std::as_writable_bytes(std::span(text)));
  if (read.code != 0) return std::strerror(read.code);
  text.resize(read.bytes);
  if (begin > 0) text.erase(0, text.find('\n') + 1);  // npos + 1 is 0: one endless line stays
  return "";
}

/// 0, or the errno of the failure.
int write_to(const Descriptor& file, std::string_view text) {
  return file.is_open() ? write_all(file.number(), text) : errno;
}

}  // namespace

History::History(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code failed;
  if (std::filesystem::create_directories(file_->parent_path(), failed)) {
    std::filesystem::permissions(file_->parent_path(), std::filesystem::perms::owner_all, failed);
  }
  load();
}

void History::give_up(const std::string& reason) {
  log::warning("history: " + file_->string() + ": " + reason + "; this run's entries are not kept");
  file_.reset();
}

void History::load() {
  std::string bytes;
  if (const std::string reason = read_tail(*file_, bytes); !reason.empty()) return give_up(reason);
  std::string text;
  Utf8Stream stream;
  stream.push(bytes, text);
  stream.flush(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) entries_.push_back(decoded(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  if (entries_.size() <= entries_max && bytes.size() <= file_bytes_max / 2) return;
  if (entries_.size() > entries_max) {
    entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(entries_max));
  }
  rewrite();
}

void History::rewrite() {
  std::string text;
  std::size_t first = entries_.size();
  for (std::size_t bytes = 0; first > 0; --first) {
    bytes += entries_[first - 1].size() + 1;
    if (bytes > file_bytes_max / 4) break;
  }
  for (std::size_t i = first; i < entries_.size(); ++i) text += encoded(entries_[i]);
  std::filesystem::path fresh = *file_;
  fresh += ".new" + std::to_string(::getpid());
  if (const int code = write_to(open_file(fresh, O_WRONLY | O_CREAT | O_EXCL), text); code != 0) {
    ::unlink(fresh.c_str());
    return give_up(std::strerror(code));
  }
  if (::rename(fresh.c_str(), file_->c_str()) != 0) give_up(std::strerror(errno));
}

void History::append(const std::string& entry) {
  const int code = write_to(open_file(*file_, O_WRONLY | O_CREAT | O_APPEND), encoded(entry));
  if (code != 0) give_up(std::strerror(code));
}

void History::add(const std::string& entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return;
  entries_.push_back(entry);
  if (file_ && entry.size() <= stored_bytes_max) append(entry);
}

namespace {

bool is_word_byte(char letter) {
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
  while (at > 0 && !is_word_byte(text_[at - 1])) --at;
  while (at > 0 && is_word_byte(text_[at - 1])) --at;
  return at;
}

std::size_t LineBuffer::word_right() const {
  std::size_t at = cursor_;
  while (at < text_.size() && !is_word_byte(text_[at])) ++at;
  while (at < text_.size() && is_word_byte(text_[at])) ++at;
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

Outcome Editing::apply(const Key& key) {
  if (is_searching_ && search(key)) return Outcome::edited;
  switch (key.kind) {
    case Key::Kind::enter:
      return enter();
    case Key::Kind::tab:
      return complete();
    case Key::Kind::interrupt:
      return Outcome::interrupted;
    case Key::Kind::clear_screen:
      return Outcome::clear_screen;
    case Key::Kind::suspend:
      return Outcome::suspend;
    case Key::Kind::end_of_input:
      if (buffer_.empty()) return Outcome::end_of_input;
      buffer_.erase_right();
      break;
    case Key::Kind::text:
    case Key::Kind::paste:
      buffer_.insert(key.text);
      break;
    case Key::Kind::search:
      is_searching_ = true;
      search_fails_ = false;
      search_text_.clear();
      place_before_ = place_;
      text_before_ = buffer_.text();
      break;
    case Key::Kind::editor:
      return Outcome::editor;
    default:
      edit(key.kind);
  }
  return Outcome::edited;
}

Outcome Editing::enter() {
  if (auto finished = finish_entry(buffer_.text())) {
    entry_ = std::move(*finished);
    return Outcome::entered;
  }
  buffer_.set(continued(buffer_.text()));
  return Outcome::edited;
}

void Editing::edit(Key::Kind kind) {
  switch (kind) {
    case Key::Kind::line_break:
      return buffer_.insert("\n");
    case Key::Kind::left:
      return buffer_.move_left();
    case Key::Kind::right:
      return buffer_.move_right();
    case Key::Kind::word_left:
      return buffer_.move_word_left();
    case Key::Kind::word_right:
      return buffer_.move_word_right();
    case Key::Kind::home:
      return buffer_.move_home();
    case Key::Kind::end:
      return buffer_.move_end();
    case Key::Kind::erase_left:
      return buffer_.erase_left();
    case Key::Kind::erase_right:
      return buffer_.erase_right();
    case Key::Kind::kill_to_end:
      return buffer_.kill_to_end();
    case Key::Kind::kill_to_begin:
      return buffer_.kill_to_begin();
    case Key::Kind::kill_word_left:
      return buffer_.kill_word_left();
    case Key::Kind::kill_word_right:
      return buffer_.kill_word_right();
    case Key::Kind::yank:
      return buffer_.yank();
    case Key::Kind::up:
      if (!buffer_.move_up()) step_back();
      return;
    case Key::Kind::down:
      if (!buffer_.move_down()) step_forward();
      return;
    case Key::Kind::history_back:
      return step_back();
    case Key::Kind::history_forward:
      return step_forward();
    default:
      return;
  }
}

void Editing::recall(std::size_t index) {
  edited_[place_] = buffer_.text();
  place_ = index;
  if (const auto found = edited_.find(index); found != edited_.end()) {
    buffer_.set(found->second);
  } else {
    buffer_.set(history_->entries()[index]);
  }
}

void Editing::step_back() {
  if (place_ > 0) recall(place_ - 1);
}

void Editing::step_forward() {
  if (place_ < history_->entries().size()) recall(place_ + 1);
}

void Editing::find_before(std::size_t end) {
  search_fails_ = false;
  for (std::size_t i = std::min(end, history_->entries().size()); i > 0; --i) {
    if (history_->entries()[i - 1].find(search_text_) == std::string::npos) continue;
    if (place_ != i - 1) recall(i - 1);
    return;
  }
  search_fails_ = true;
}

/// True: the key belonged to the search. Any other key ends it and means what it always means.
bool Editing::search(const Key& key) {
  switch (key.kind) {
    case Key::Kind::text:
      search_text_ += key.text;
      find_before(place_ + 1);
      return true;
    case Key::Kind::erase_left:
      if (!search_text_.empty()) {
        search_text_.erase(previous_grapheme(search_text_, search_text_.size()));
      }
      return true;
    case Key::Kind::search:
      find_before(place_);
      return true;
    case Key::Kind::abort:
      is_searching_ = false;
      place_ = place_before_;
      buffer_.set(text_before_);
      return true;
    default:
      is_searching_ = false;
      return key.kind == Key::Kind::interrupt;
  }
}

Outcome Editing::complete() {
  const std::string typed = buffer_.text().substr(0, buffer_.cursor());
  choices_.clear();
  if (!typed.empty() && *completer_) choices_ = (*completer_)(typed);
  if (choices_.empty()) return Outcome::edited;
  std::string common = choices_.front();
  for (const std::string& choice : choices_) {
    const auto differs = std::mismatch(common.begin(), common.end(), choice.begin(), choice.end());
    common.erase(differs.first, common.end());
  }
  if (choices_.size() == 1 && !common.ends_with('/')) common += ' ';
  if (common.size() == typed.size()) return Outcome::choices;
  buffer_.insert(common.substr(typed.size()));
  return Outcome::edited;
}

}  // namespace hyb::app
