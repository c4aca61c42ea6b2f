#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "app/machine/environment.h"

namespace hyb::app {

enum class Stream : std::uint8_t { input = 0, output = 1, error = 2 };

bool is_terminal(Stream stream);

/// Columns of the terminal of `stream`; 80 where it is not a terminal or does not say.
int terminal_columns(Stream stream);

/// Columns of texts that go to stdout: COLUMNS, else as terminal_columns.
int text_columns(const Environment& environment);

/// Rows likewise; the default is 24.
int terminal_rows(Stream stream);

/// Wraps the text at the terminal's width (see wrapped()), where the stream is one; else returns it
/// as it is. `columns_before` are taken in front of it.
std::string fitted_to(Stream stream, std::string text, int columns_before = 0);

/// Waits until stdin has input or has ended. False: the time is over, or a signal came.
bool input_ready(int timeout_ms);

/// True if cursor movement may be written to `stream`: a terminal, and TERM is neither empty nor
/// "dumb".
bool can_move_cursor(Stream stream, const Environment& environment);

/// True if colours may be written: set_colour() decides, else NO_COLOR says no, else CLICOLOR_FORCE
/// and FORCE_COLOR say yes, else can_move_cursor() decides.
bool wants_colour(Stream stream, const Environment& environment);

/// Sets what --color says; nullopt is auto.
void set_colour(std::optional<bool> wanted);

/// Writes data and texts to stdout: as they are into a file or a pipe, harmless where stdout is a
/// terminal (see Sanitizer). False: the reader is gone. Throws as write_stdout.
bool write_output(std::string_view text);

enum class Interrupts : std::uint8_t { keys, signals };

/// Keys arrive one by one, unechoed, and Ctrl-C and Ctrl-Z as keys too unless they are to stay
/// signals; pastes are bracketed. Undone at the end of its life, and when a signal ends the
/// process. At most one lives at a time.
class RawMode {
 public:
  /// Needs a terminal on stdin and stdout; where the modes cannot be set, nothing is changed.
  explicit RawMode(Interrupts interrupts);
  ~RawMode();
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

  /// Sets the modes again: the process was stopped, and another process may have
  /// changed them.
  void renew();

  /// Does something with the terminal's own modes, such as running another program.
  void leave_for(const std::function<void()>& action);

  /// Stops the process as Ctrl-Z does, with the terminal's own modes; returns when it continues.
  void suspend();

 private:
  Interrupts interrupts_;
  bool is_active_ = false;
};

}  // namespace hyb::app
