#pragma once

#include <atomic>

namespace hyb::app {

/// The process's manners: SIGPIPE is ignored (a closed stdout is noticed at the next write), SIGINT
/// and SIGTERM raise a flag that loops look at, a second SIGINT ends at once; terminal modes are
/// restored on every way out. One per process.
class ProcessGuard {
 public:
  ProcessGuard();
  ~ProcessGuard();

  /// 130 or 143 when a signal asked to stop; 1 when flushing stdout failed for another reason than
  /// a closed pipe; else `code`.
  int exit_code(int code) const;
};

/// The signal that asked to stop since the last clear: 0, SIGINT or SIGTERM (SIGHUP counts as it).
int stop_signal();
void clear_stop_signal();

/// Writes all of `text` to stdout, unbuffered. False: the reader is gone (EPIPE): end quietly.
/// Throws Error(runtime) naming the reason for other failures (full disk).
bool write_stdout(const char* text, unsigned long size);

}  // namespace hyb::app
