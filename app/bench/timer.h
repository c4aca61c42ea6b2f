#pragma once

#include <chrono>

namespace hyb::app {

/// The clock that a workload lives by.
class Timer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Timer() = default;
  virtual TimePoint now() = 0;
  /// Returns at `time`, or sooner when there may be something else to look at.
  virtual void wait_until(TimePoint time) = 0;
};

/// The real one: waits for 50 ms at most.
class SteadyTimer final : public Timer {
 public:
  TimePoint now() override { return std::chrono::steady_clock::now(); }
  void wait_until(TimePoint time) override;
};

}  // namespace hyb::app
