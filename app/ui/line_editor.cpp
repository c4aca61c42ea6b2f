#include "app/ui/line_editor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "app/ui/external_editor.h"
#include "app/ui/process.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

// A cluster longer than this is shown in parts: terminals support no more.
constexpr std::size_t bytes_per_column = 8;

bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

/// Returns what is shown for the grapheme cluster.
std::string shown(std::string_view grapheme) {
  if (grapheme == "\t") return "    ";
  const auto first = static_cast<unsigned char>(grapheme.front());
  if (first < 0x20) return {'^', static_cast<char>(first + '@')};
  if (first == 0x7F) return "^?";
  std::string out;
  for (std::size_t at = 0; at < grapheme.size();) {
    const char32_t code_point = next_code_point(grapheme, at);
    append_utf8(out, is_unsafe(code_point) ? U'\xFFFD' : code_point);
  }
  return out;
}

class Layout {
 public:
  Layout(std::string_view text, std::size_t cursor, const ViewOptions& options)
      : text_(text), cursor_(cursor), options_(options) {}

  View take() {
    const auto bytes = static_cast<std::size_t>(std::max(options_.rows_max, 1)) *
                       static_cast<std::size_t>(std::max(options_.columns, 1)) * bytes_per_column;
    std::size_t begin = cursor_ - std::min(cursor_, bytes);
    while (begin > 0 && is_inside_character(text_, begin)) --begin;
    std::size_t end = cursor_ + std::min(text_.size() - cursor_, bytes);
    while (is_inside_character(text_, end)) ++end;
    if (begin > 0) add_row("...");
    begin_row(begin == 0 ? options_.prompt : options_.continuation);
    lay(begin, end);
    if (end < text_.size()) add_row("...");
    keep_rows_around_cursor();
    return std::move(view_);
  }

 private:
  void add_row(std::string row) { view_.rows.push_back(std::move(row)); }

  void begin_row(std::string_view prompt) {
    // In a window too narrow for both, the text is shown without the prompt.
    const int width = columns(prompt);
    const bool fits = width + 4 <= options_.columns;
    add_row(fits ? std::string(prompt) : std::string());
    used_ = fits ? width : 0;
  }

  void mark_cursor() {
    view_.cursor_row = static_cast<int>(view_.rows.size()) - 1;
    view_.cursor_column = used_;
  }

  void lay(std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      if (text_[at] == '\n') {
        if (at == cursor_) mark_cursor();
        begin_row(options_.continuation);
        ++at;
        continue;
      }
      const std::size_t next = next_grapheme(text_.substr(0, end), at);
      const std::string piece = shown(text_.substr(at, next - at));
      const int width = columns(piece);
      if (used_ + width > options_.columns && used_ > 0) {
        add_row("");
        used_ = 0;
      }
      if (cursor_ >= at && cursor_ < next) mark_cursor();
      view_.rows.back() += piece;
      used_ += width;
      at = next;
    }
    if (cursor_ != end) return;
    if (used_ >= options_.columns) {
      add_row("");
      used_ = 0;
    }
    mark_cursor();
  }

  void keep_rows_around_cursor() {
    const auto rows_max = static_cast<std::size_t>(std::max(options_.rows_max, 1));
    std::vector<std::string>& rows = view_.rows;
    if (rows.size() <= rows_max) return;
    const auto cursor = static_cast<std::size_t>(view_.cursor_row);
    const std::size_t above = std::min(cursor, rows_max / 2);
    const std::size_t first = std::min(cursor - above, rows.size() - rows_max);
    const bool more_below = first + rows_max < rows.size();
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(first + rows_max), rows.end());
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(first));
    view_.cursor_row -= static_cast<int>(first);
    if (first > 0 && view_.cursor_row > 0) rows.front() = "...";
    if (more_below && view_.cursor_row + 1 < static_cast<int>(rows.size())) rows.back() = "...";
  }

  std::string_view text_;
  std::size_t cursor_;
  ViewOptions options_;
  View view_;
  int used_ = 0;
};

}  // namespace

View lay_out(std::string_view text, std::size_t cursor, const ViewOptions& options) {
  return Layout(text, cursor, options).take();
}

namespace {

constexpr std::string_view clear_below = "\r\x1b[J";
constexpr std::string_view clear_screen = "\x1b[H\x1b[2J";
constexpr std::string_view prompt_colour = "\x1b[1;32m";
constexpr std::string_view no_colour = "\x1b[m";

std::string moved(int count, char direction) {
  return count > 0 ? fmt::format("\x1b[{}{}", count, direction) : std::string();
}

}  // namespace

View LineEditor::view_of(const Editing& editing, std::size_t cursor) const {
  const std::string prompt = editing.is_searching()
                                 ? (editing.search_fails() ? "(failing search: " : "(search: ") +
                                       cut_to_columns(editing.search_text(), 20) + ") "
                                 : asking_.prompt;
  // One column stays free: terminals differ in where the cursor is after a full row.
  return lay_out(editing.buffer().text(), cursor,
                 {.prompt = prompt,
                  .continuation = options_.continuation,
                  .columns = std::max(terminal_columns(Stream::output) - 1, 1),
                  .rows_max = std::max(terminal_rows(Stream::output) - 1, 1)});
}

/// Back to where the drawing begins. When the window became narrower, the terminal has broken the
/// rows again.
std::string LineEditor::to_first_row() const {
  const int width = terminal_columns(Stream::output);
  int up = drawn_.cursor_column / width;
  for (int row = 0; row < drawn_.cursor_row; ++row) {
    const int used = columns(drawn_.rows[static_cast<std::size_t>(row)]);
    up += 1 + std::max(used - 1, 0) / width;
  }
  return moved(up, 'A') + std::string(clear_below);
}

std::string LineEditor::painted(const View& view) const {
  std::string out;
  for (std::size_t i = 0; i < view.rows.size(); ++i) {
    if (i > 0) out += "\r\n";
    std::string_view row = view.rows[i];
    if (i == 0 && options_.has_colour && row.starts_with(asking_.prompt)) {
      out.append(prompt_colour).append(asking_.prompt).append(no_colour);
      row.remove_prefix(asking_.prompt.size());
    }
    out += row;
  }
  return out;
}

void LineEditor::draw(const Editing& editing) {
  View view = view_of(editing, editing.buffer().cursor());
  std::string out = to_first_row() + painted(view);
  out += moved(static_cast<int>(view.rows.size()) - 1 - view.cursor_row, 'A') + '\r';
  out += moved(view.cursor_column, 'C');
  write_stdout(out);
  drawn_ = std::move(view);
}

void LineEditor::finish(const Editing& editing) {
  const View view = view_of(editing, editing.buffer().text().size());
  write_stdout(to_first_row() + painted(view) + "\r\n");
  drawn_ = {};
}

void LineEditor::show_choices(const Editing& editing) {
  const std::string typed = editing.buffer().text().substr(0, editing.buffer().cursor());
  const std::size_t word = typed.rfind(' ') + 1;  // npos + 1 is 0
  std::string line;
  for (const std::string& choice : editing.choices()) line += choice.substr(word) + "  ";
  finish(editing);
  write_stdout(wrapped(sanitized_line(line), terminal_columns(Stream::output)) + "\n");
}

/// A failure is said, and the text stays.
void LineEditor::edit_elsewhere(Editing& editing, RawMode& mode) {
  finish(editing);
  try {
    std::string text;
    mode.leave_for([&] { text = edited_by(options_.editor, editing.buffer().text()); });
    editing.replace(std::move(text));
  } catch (const Error& error) {
    log::error(error.what());
  }
}

LineEditor::Wait LineEditor::wait_for_keys(RawMode& mode) {
  constexpr int escape_ms = 50;
  constexpr int glance_ms = 250;  // a signal may come just before the wait
  const bool ready = input_ready(decoder_.is_waiting() ? escape_ms : glance_ms);
  if (stop_signal() == SIGINT) {
    clear_stop_signal();
    keys_.push_back({Key::Kind::interrupt});
    return Wait::keys;
  }
  if (stop_signal() != 0) return Wait::ended;
  if (const int changes = terminal_changes(); changes != changes_seen_) {
    changes_seen_ = changes;
    mode.renew();
    return Wait::keys;  // to redraw
  }
  if (!ready) {
    if (decoder_.is_waiting()) decoder_.give_up();
    return Wait::nothing;
  }
  std::array<char, 65536> bytes;
  const ssize_t read = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (read < 0 && (errno == EINTR || errno == EAGAIN)) return Wait::nothing;
  if (read <= 0) return Wait::ended;
  decoder_.push({bytes.data(), static_cast<std::size_t>(read)}, decoded_);
  std::move(decoded_.begin(), decoded_.end(), std::back_inserter(keys_));
  decoded_.clear();
  return keys_.empty() ? Wait::nothing : Wait::keys;
}

InputEvent LineEditor::read(const InputRequest& request) {
  asking_ = request;
  RawMode mode(Interrupts::keys);  // to the end of the work: keys pressed during it are not echoed
  BackgroundWork work(std::exchange(asking_.work, nullptr));
  const InputEvent event = edit(mode);
  work.stop();
  return event;
}

InputEvent LineEditor::edit(RawMode& mode) {
  Editing editing(history_, options_.complete, asking_.draft);
  changes_seen_ = terminal_changes();
  drawn_ = {};
  draw(editing);
  for (;;) {
    while (!keys_.empty()) {
      const Key key = std::move(keys_.front());
      keys_.pop_front();
      switch (editing.apply(key)) {
        case Outcome::edited:
          break;
        case Outcome::entered:
          finish(editing);
          history_.add(editing.buffer().text());
          return {InputEvent::Kind::entered, editing.entry()};
        case Outcome::interrupted: {
          const bool was_empty = editing.buffer().empty();
          if (was_empty) finish(editing);
          if (was_empty) return {InputEvent::Kind::interrupted};
          editing = Editing(history_, options_.complete);
          break;
        }
        case Outcome::end_of_input:
          finish(editing);
          return {InputEvent::Kind::ended};
        case Outcome::choices:
          show_choices(editing);
          break;
        case Outcome::clear_screen:
          write_stdout(clear_screen);
          drawn_ = {};
          break;
        case Outcome::suspend:
          finish(editing);
          mode.suspend();
          break;
        case Outcome::editor:
          edit_elsewhere(editing, mode);
          break;
      }
    }
    draw(editing);
    Wait wait = Wait::nothing;
    while (wait == Wait::nothing) wait = wait_for_keys(mode);
    if (wait == Wait::ended) {
      finish(editing);
      return {InputEvent::Kind::ended};
    }
  }
}

/// None: the input has ended, or a signal came.
std::optional<std::string> PlainLines::next_line(const InputRequest& request) {
  // Not for ever: a signal may come just before the wait.
  constexpr int glance_ms = 250;
  bool has_work = static_cast<bool>(request.work);
  for (;;) {
    const std::size_t end = pending_.find('\n', searched_);
    if (end != std::string::npos || (has_ended_ && !pending_.empty())) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end == std::string::npos ? end : end + 1);
      searched_ = 0;
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    searched_ = pending_.size();
    if (searched_ > line_bytes_max) {
      throw Error(ErrorKind::model,
                  fmt::format("stdin: a line has more than {} bytes, the most that are read",
                              line_bytes_max));
    }
    if (has_ended_ || stop_signal() != 0) return std::nullopt;
    if (!input_ready(has_work ? 0 : glance_ms)) {
      if (has_work) has_work = request.work();
      continue;
    }
    std::array<char, 65536> bytes;
    const ssize_t read = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (read < 0 && errno != EINTR && errno != EAGAIN) {
      throw Error(ErrorKind::runtime, std::string("stdin: cannot read: ") + std::strerror(errno));
    }
    if (read == 0) has_ended_ = true;
    if (read > 0) pending_.append(bytes.data(), static_cast<std::size_t>(read));
  }
}

InputEvent PlainLines::read(const InputRequest& request) {
  std::string text;
  if (is_person_) write_stderr(request.prompt);
  for (;;) {
    auto line = next_line(request);
    if (!line) {
      if (stop_signal() == SIGINT && is_person_) {
        clear_stop_signal();
        return {InputEvent::Kind::interrupted};
      }
      if (text.empty() || stop_signal() != 0) return {InputEvent::Kind::ended};
      return {InputEvent::Kind::entered, {text}};
    }
    text += *line;
    if (!is_person_) return {InputEvent::Kind::entered, {text}};
    if (auto entry = finish_entry(text)) return {InputEvent::Kind::entered, std::move(*entry)};
    text = continued(std::move(text));
    write_stderr(". ");
  }
}

}  // namespace hyb::app
