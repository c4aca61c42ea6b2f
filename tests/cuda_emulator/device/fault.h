#pragma once

#include <signal.h>

#include <atomic>
#include <mutex>
#include <source_location>
#include <string>

namespace emulator {

/// The first thing that went wrong since it was cleared, as text. Shared by all workers.
class FaultLog {
 public:
  void report(const std::string& text);
  bool has_fault() const { return has_fault_.load(std::memory_order_acquire); }
  std::string text() const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> has_fault_{false};
  std::string text_;
};

inline FaultLog& fault_log() {  // read whenever a fibre leaves
  static FaultLog log;
  return log;
}

/// What ends a kernel's thread, and with it the launch; caught below the kernel.
struct Fault {
  std::string text;
};

/// Ends the launch from inside a kernel: the text is reported with block, thread and place, and no
/// thread of the launch runs any further.
[[noreturn]] void fault(const std::string& text,
                        std::source_location where = std::source_location::current());

/// ", in block (0,0,0) thread (0,0,0) of silu_kernel<float>": of the thread that runs.
std::string describe_current_thread();

/// "kernels/ops/x.cu:12"
std::string to_text(const std::source_location& where);

/// While it lives, an access to memory that may not be touched ends the launch with a fault instead
/// of the process. Memory faults outside of kernels are said on stderr and end the process as ever.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// Every thread of the operating system that runs kernels needs a stack for the handler.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* bytes_ = nullptr;
  stack_t earlier_{};
};

}  // namespace emulator
