#include "app/ui/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

constexpr std::string_view clear_line = "\r\x1b[K";
constexpr std::chrono::milliseconds interval{100};

/// Columns of a line; one is left free, since a full line makes some terminals wrap.
int room() { return terminal_columns(Stream::error) - 1; }

// A global, as stderr is: messages come from anywhere.
std::atomic<bool> is_line_shown{false};

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

std::string time_left_text(const ProgressCount& count, std::chrono::nanoseconds elapsed) {
  const std::int64_t now = count.done - count.before;
  if (now <= 0 || count.done >= count.total) return "";
  const auto left = std::chrono::duration<double>(elapsed) *
                    (static_cast<double>(count.total - count.done) / static_cast<double>(now));
  return duration_text(std::chrono::duration_cast<std::chrono::nanoseconds>(left)) + " left";
}

namespace {

/// Appends the time that is left and the note, where there are such.
std::string with_more(std::string text, std::string_view separator, const ProgressCount& count,
                      std::chrono::nanoseconds elapsed, std::string_view note) {
  const std::string left = time_left_text(count, elapsed);
  for (const std::string_view more : {std::string_view(left), note}) {
    if (!more.empty()) text.append(separator).append(more);
  }
  return text;
}

}  // namespace

std::string bar_text(const ProgressCount& count, std::chrono::nanoseconds elapsed,
                     std::string_view note, int columns_max) {
  const std::string text =
      with_more(fmt::format(" {}/{}", count.done, count.total), "  ", count, elapsed, note);
  return progress_bar(count.done, count.total, columns_max - columns(text)) + text;
}

std::string message_text(std::string_view text) {
  if (is_line_shown.exchange(false)) write_stderr_as_is(clear_line);
  constexpr int name_columns = 14;  // "hyb: warning: "
  return fitted_to(Stream::error, sanitized_line(text), name_columns);
}

ProgressLine::ProgressLine(const Environment& environment, std::chrono::nanoseconds plain_every,
                           std::chrono::nanoseconds delay)
    : is_shown_(can_move_cursor(Stream::error, environment) && log::is_shown(log::Level::info)),
      plain_every_(is_shown_ || !log::is_shown(log::Level::info) ? std::chrono::nanoseconds{0}
                                                                 : plain_every),
      delay_(delay) {}

ProgressLine::~ProgressLine() { clear(); }

bool ProgressLine::is_due() {
  const Clock::time_point now = Clock::now();
  if (!is_shown_ || now < next_ || now < started_ + delay_) return false;
  next_ = now + interval;
  return true;
}

void ProgressLine::write(std::string_view text) {
  write_stderr_as_is(std::string(clear_line) + cut_to_columns(sanitized_line(text), room()));
  is_visible_ = true;
  is_line_shown = true;
}

void ProgressLine::show(std::string_view text) {
  if (is_due()) write(text);
}

void ProgressLine::show(const ProgressCount& count, std::string_view note) {
  if (plain_every_.count() > 0) write_plain(count, note);
  if (!is_due()) return;
  write(bar_text(count, Clock::now() - started_, note, room()));
}

void ProgressLine::write_plain(const ProgressCount& count, std::string_view note) {
  const Clock::time_point now = Clock::now();
  if (now < next_plain_) return;
  next_plain_ = now + plain_every_;
  write_stderr(with_more(fmt::format("{} of {} done", count.done, count.total), ", ", count,
                         now - started_, note) +
               "\n");
}

void ProgressLine::clear() {
  if (is_visible_ && is_line_shown.exchange(false)) write_stderr_as_is(clear_line);
  is_visible_ = false;
  next_ = Clock::time_point{};
}

}  // namespace hyb::app
