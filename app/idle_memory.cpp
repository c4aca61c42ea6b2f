#include "app/idle_memory.h"

#include <limits>
#include <thread>
#include <utility>

namespace hyb::app {
namespace {

using Clock = std::chrono::steady_clock;

/// So long a key that is pressed meanwhile waits; nobody feels it.
constexpr std::chrono::milliseconds nap(20);

}  // namespace

std::function<bool()> give_back_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                          std::function<bool()> ahead) {
  const Clock::time_point begin = Clock::now();
  return [&engine, delay, begin, ahead = std::move(ahead)]() mutable {
    if (ahead && ahead()) return true;
    ahead = nullptr;
    if (Clock::now() - begin < delay) {
      std::this_thread::sleep_for(nap);
      return true;
    }
    if (engine.pool().give_back(std::numeric_limits<std::int32_t>::max()) > 0) {
      engine.carry_out_orders();
    }
    return false;
  };
}

}  // namespace hyb::app
