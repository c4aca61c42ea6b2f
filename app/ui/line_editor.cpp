#include "app/ui/line_editor.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "app/ui/background_work.h"
#include "app/ui/process.h"
#include "app/ui/text_width.h"

namespace hyb::app {
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
                                 ? "(search: " + cut_to_columns(editing.search_text(), 20) + ") "
                                 : asking_.prompt;
  // One column stays free: terminals differ in where the cursor stands after a full row.
  return lay_out(editing.buffer().text(), cursor,
                 {.prompt = prompt,
                  .continuation = options_.continuation,
                  .columns = std::max(terminal_columns(Stream::output) - 1, 1),
                  .rows_max = std::max(terminal_rows(Stream::output) - 1, 1)});
}

/// Back to where the drawing begins. When the window became narrower, the terminal has broken the
/// rows anew.
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
  std::string line;
  for (const std::string& choice : editing.choices()) line += choice + "  ";
  const View view = view_of(editing, editing.buffer().text().size());
  write_stdout(to_first_row() + painted(view) + "\r\n" + line + "\r\n");
  drawn_ = {};
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
    return Wait::keys;  // to draw anew
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

InputEvent LineEditor::read(const Asking& asking) {
  asking_ = asking;
  RawMode mode(Interrupts::keys);  // to the end of the work: keys pressed meanwhile are not echoed
  BackgroundWork work(std::exchange(asking_.work, nullptr));
  const InputEvent event = edit(mode);
  work.stop();
  return event;
}

InputEvent LineEditor::edit(RawMode& mode) {
  Editing editing(history_, options_.words, asking_.draft);
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
          editing = Editing(history_, options_.words);
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

}  // namespace hyb::app
