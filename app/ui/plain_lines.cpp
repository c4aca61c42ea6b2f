#include "app/ui/plain_lines.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"

namespace hyb::app {

/// None: the input has ended, or a signal came.
std::optional<std::string> PlainLines::next_line(const Asking& asking) {
  // Not for ever: a signal may come just before the wait.
  constexpr int glance_ms = 250;
  bool has_work = static_cast<bool>(asking.work);
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
    if (has_ended_ || stop_signal() != 0) return std::nullopt;
    if (!input_ready(has_work ? 0 : glance_ms)) {
      if (has_work) has_work = asking.work();
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

InputEvent PlainLines::read(const Asking& asking) {
  std::string text;
  if (is_person_) write_stderr(asking.prompt);
  for (;;) {
    auto line = next_line(asking);
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
