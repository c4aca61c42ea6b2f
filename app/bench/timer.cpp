#include "app/bench/timer.h"

#include <algorithm>
#include <thread>

namespace hyb::app {

void SteadyTimer::wait_until(TimePoint time) {
  constexpr std::chrono::milliseconds wait_max{50};
  std::this_thread::sleep_until(std::min(time, now() + wait_max));
}

}  // namespace hyb::app
