#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "app/machine/environment.h"

namespace hyb::app {

/// "[=====>    ] 50%": a bar of `columns` characters in all (at least 8), `done` of `total`.
std::string progress_bar(std::int64_t done, std::int64_t total, int columns);

/// "7 s", "3 min 05 s", "2 h 04 min".
std::string duration_text(std::chrono::nanoseconds duration);

/// Work that is counted: `done` of `total`, of which `before` took this run no time.
struct ProgressCount {
  std::int64_t done = 0, total = 0, before = 0;
};

/// "3 min 05 s left" at this run's rate so far; empty: not known yet, or nothing is left.
std::string time_left_text(const ProgressCount& count, std::chrono::nanoseconds elapsed);

/// A bar, "done/total", the time that is left, and `note`, in `columns` in all where that is enough
/// for a bar of 8.
std::string bar_text(const ProgressCount& count, std::chrono::nanoseconds elapsed,
                     std::string_view note, int columns);

/// A person is not left waiting for an answer without a sign for longer.
inline constexpr std::chrono::milliseconds patience{500};

/// A log message for stderr: on one line, harmless to a terminal, wrapped where it is one. A
/// progress line that is shown there is taken away.
std::string message_text(std::string_view text);

/// One line on stderr that is written over and over, at most ten times a second. Where stderr is no
/// terminal that can move its cursor, and below the level of information, nothing is written.
class ProgressLine {
 public:
  /// `plain_every`: without such a terminal, a line of its own this often, for logs; 0: none.
  /// `delay`: before it nothing is shown, since what is soon done needs no line.
  explicit ProgressLine(const Environment& environment,
                        std::chrono::nanoseconds plain_every = std::chrono::nanoseconds{0},
                        std::chrono::nanoseconds delay = std::chrono::nanoseconds{0});
  ~ProgressLine();  ///< clears
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_shown() const { return is_shown_; }

  /// Shows `text`, cut to the width of the terminal; control characters are replaced.
  void show(std::string_view text);

  /// Shows bar_text() over the width of the terminal.
  void show(const ProgressCount& count, std::string_view note = {});

  /// Takes the line away; to be called before other text goes to stderr.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_due();
  void write(std::string_view text);
  void write_plain(const ProgressCount& count, std::string_view note);

  bool is_shown_;
  std::chrono::nanoseconds plain_every_, delay_;
  bool is_visible_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point next_ = started_;
  Clock::time_point next_plain_ = started_ + plain_every_;
};

}  // namespace hyb::app
