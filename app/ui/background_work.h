#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace hyb::app {

/// Does work, a piece a call, on a thread of its own: whoever waits for keys meanwhile answers them
/// at once, however long a piece takes. Signals stay with the other threads.
class BackgroundWork {
 public:
  /// Begins at once and ends when a piece returns false, throws, or stop() is called. An empty
  /// function is no work.
  explicit BackgroundWork(std::function<bool()> work);
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Waits for the piece that is being done: nothing goes on afterwards. Throws what the work
  /// threw, once.
  void stop();

 private:
  void run();

  std::function<bool()> work_;
  std::atomic<bool> is_stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace hyb::app
