#include "app/ui/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"

namespace hyb::app {
namespace {

constexpr std::string_view clear_line = "\r\x1b[K";
constexpr std::chrono::milliseconds interval{100};

}  // namespace

std::string progress_bar(std::int64_t done, std::int64_t total, int columns) {
  const double share =
      total <= 0 ? 0.0 : std::clamp(static_cast<double>(done) / static_cast<double>(total), 0., 1.);
  const int inside = std::max(columns, 8) - 7;  // brackets, a space, "100%"
  const int filled = static_cast<int>(share * inside);
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < inside) bar += '>';
  bar.resize(static_cast<std::size_t>(inside), ' ');
  return fmt::format("[{}] {:3}%", bar, static_cast<int>(share * 100));
}

std::string duration_text(std::chrono::nanoseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

ProgressLine::ProgressLine(const Environment& environment)
    : is_shown_(can_move_cursor(Stream::error, environment)) {}

ProgressLine::~ProgressLine() { clear(); }

bool ProgressLine::is_due() {
  const Clock::time_point now = Clock::now();
  if (!is_shown_ || now < next_) return false;
  next_ = now + interval;
  return true;
}

void ProgressLine::write(std::string_view text) {
  // One column is left free: a full line makes some terminals wrap.
  const int room = terminal_columns(Stream::error) - 1;
  write_stderr_as_is(std::string(clear_line) + cut_to_columns(sanitized_line(text), room));
  is_visible_ = true;
}

void ProgressLine::show(std::string_view text) {
  if (is_due()) write(text);
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::string_view note) {
  if (!is_due()) return;
  std::string text = fmt::format("{} {}/{}", progress_bar(done, total, 30), done, total);
  if (done > 0 && done < total) {
    const auto elapsed = std::chrono::duration<double>(Clock::now() - started_);
    const auto left = elapsed * (static_cast<double>(total - done) / static_cast<double>(done));
    text +=
        "  " + duration_text(std::chrono::duration_cast<std::chrono::nanoseconds>(left)) + " left";
  }
  if (!note.empty()) text.append("  ").append(note);
  write(text);
}

void ProgressLine::clear() {
  if (is_visible_) write_stderr_as_is(clear_line);
  is_visible_ = false;
  next_ = Clock::time_point{};
}

}  // namespace hyb::app
