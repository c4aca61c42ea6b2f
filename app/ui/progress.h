#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "app/environment.h"

namespace hyb::app {

/// "[=====>    ] 50%": a bar of `columns` characters in all (at least 8), `done` of `total`.
std::string progress_bar(std::int64_t done, std::int64_t total, int columns);

/// "7 s", "3 min 05 s", "2 h 04 min".
std::string duration_text(std::chrono::nanoseconds duration);

/// One line on stderr that is written over and over, at most ten times a second. Where stderr is no
/// terminal that can move its cursor, nothing is written at all.
class ProgressLine {
 public:
  explicit ProgressLine(const Environment& environment);
  ~ProgressLine();  ///< clears
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_shown() const { return is_shown_; }

  /// Shows `text`, cut to the width of the terminal; control characters are replaced.
  void show(std::string_view text);

  /// Shows a bar, "done/total", the time that is left at the rate so far, and `note`.
  void show(std::int64_t done, std::int64_t total, std::string_view note = {});

  /// Takes the line away; to be called before other text goes to stderr.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_due();
  void write(std::string_view text);

  bool is_shown_;
  bool is_visible_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point next_ = started_;
};

}  // namespace hyb::app
