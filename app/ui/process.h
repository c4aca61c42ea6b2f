#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace hyb::app {

/// The process's manners: SIGPIPE and SIGXFSZ are ignored (a closed stdout and a file at ulimit -f
/// are noticed at the next write, by code that knows what it was for), SIGINT and SIGTERM raise a
/// flag that loops look at, a second SIGINT ends at once; terminal modes are restored on every way
/// out. Where memory is short and that cannot be caught (in a thread, in a destructor, before main)
/// the process ends with one line and exit code 4. One per process.
class ProcessGuard {
 public:
  ProcessGuard();
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  /// 130 or 143 when a signal asked to stop, else `code`.
  int exit_code(int code) const;
};

/// The signal that asked to stop since the last clear: 0, SIGINT or SIGTERM (SIGHUP counts as it).
int stop_signal();
void clear_stop_signal();

/// While one lives, the first SIGINT or SIGTERM ends the process at once. It is for work that looks
/// at no flag and has nothing to lose, such as opening a model.
class StopAtOnce {
 public:
  StopAtOnce();
  ~StopAtOnce();
  StopAtOnce(const StopAtOnce&) = delete;
  StopAtOnce& operator=(const StopAtOnce&) = delete;
};

/// While one lives, further SIGINTs are the same request as the first, since its handler has
/// something to lose. SIGTERM and SIGQUIT still end the process.
class StopOnce {
 public:
  StopOnce();
  ~StopOnce();
  StopOnce(const StopOnce&) = delete;
  StopOnce& operator=(const StopOnce&) = delete;
};

/// Sets the text, a literal, that a SIGINT writes to stderr at once when it raises the flag, since
/// the program may be busy for a while. Null writes nothing.
void set_stop_note(const char* note);

/// Counts SIGWINCH and SIGCONT: when it has changed, the window or the terminal's modes may have.
int terminal_changes();

/// Called before a signal ends the process at once; does only what is safe in a signal handler.
/// Null: nothing.
void set_last_words(void (*restore_terminal)());

/// Writes all of `text` to stdout, unbuffered. False: the reader is gone (EPIPE): end quietly.
/// Throws Error(runtime) naming the reason for other failures (full disk).
bool write_stdout(const char* text, unsigned long size);
bool write_stdout(std::string_view text);

/// Writes status lines and hints for people to stderr, harmless to a terminal (see Sanitizer) and
/// wrapped at its width. What cannot be written is dropped: there is no reader.
void write_stderr(std::string_view text);

/// The same for what can be left out: nothing with --quiet, and above the level of
/// information.
void write_note(std::string_view text);

/// Does what write_stderr() does, for text with escape sequences of our own, in which text from
/// outside is already sanitized.
void write_stderr_as_is(std::string_view text);

/// True for a named pipe, such as the /dev/fd/63 of a shell's <(...).
bool is_pipe(const std::string& name);

struct StreamLimits {
  std::size_t bytes_max;
  std::chrono::milliseconds patience;
  const char* waiting;  ///< the warning when more than `patience` was spent waiting
};

/// All that comes out of an open file or pipe, of which messages say `name`. Throws Error(model)
/// above bytes_max (of a regular file before it is read), Error(runtime) when reading fails.
std::string read_stream(int descriptor, const char* name, const StreamLimits& limits);

/// Does work, a slice per call, on a thread of its own, so that keys are answered at once however
/// long a slice takes. Signals stay with the other threads.
class BackgroundWork {
 public:
  /// Starts at once and ends when a slice returns false, throws, or stop() is called. An empty
  /// function is no work.
  explicit BackgroundWork(std::function<bool()> work);
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Waits for the piece that is being done: nothing runs afterwards. Throws what the work
  /// threw, once.
  void stop();

 private:
  void run();

  std::function<bool()> work_;
  std::atomic<bool> is_stopped_ = false;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace hyb::app
