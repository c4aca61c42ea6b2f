#include "app/idle_memory.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace hyb::app {
namespace {

/// So long an entry waits that is finished meanwhile; nobody feels it.
constexpr std::chrono::milliseconds nap(20);

void give_back(Engine& engine, std::int32_t superblocks_max) {
  if (engine.pool().give_back(superblocks_max) > 0) engine.carry_out_orders();
}

}  // namespace

void add_idle_option(CLI::App& cli, std::optional<double>& seconds) {
  cli.add_option("--memory-idle", seconds,
                 "give memory back to the machine that was not needed for so many seconds")
      ->check(CLI::Range(0.0, 1e9));
}

void check_idle(const std::optional<double>& seconds, const PoolOptions& pools) {
  if (seconds && pools.mode == "flat") {
    throw Error(ErrorKind::usage, "--memory-idle: --memory-mode flat gives no memory back");
  }
}

IdleMemory::IdleMemory(Engine& engine, const std::optional<double>& seconds, Clock::time_point now)
    : engine_(&engine), begin_(now), superblocks_(engine.usage().pool.superblocks_idle) {
  if (seconds) delay_ = std::chrono::duration<double>(*seconds);
}

void IdleMemory::look(Clock::time_point now) {
  if (!delay_) return;
  superblocks_ = std::min(superblocks_, engine_->usage().pool.superblocks_idle);
  if (now - begin_ < *delay_) return;
  if (superblocks_ > 0) give_back(*engine_, superblocks_);
  begin_ = now;
  superblocks_ = engine_->usage().pool.superblocks_idle;
}

std::function<bool()> give_back_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                          std::function<bool()> ahead) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  return [&engine, delay, begin, ahead = std::move(ahead)]() mutable {
    if (ahead && ahead()) return true;
    ahead = nullptr;
    if (Clock::now() - begin < delay) {
      std::this_thread::sleep_for(nap);
      return true;
    }
    give_back(engine, std::numeric_limits<std::int32_t>::max());
    return false;
  };
}

}  // namespace hyb::app
