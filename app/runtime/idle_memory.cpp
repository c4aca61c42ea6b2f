#include "app/runtime/idle_memory.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include "core/base/error.h"

namespace hyb::app {
namespace {

/// The longest that a finished entry may have to wait: too short to notice.
constexpr std::chrono::milliseconds nap(20);

void give_back(Engine& engine, std::int32_t superblocks_max) {
  if (engine.pool().give_back(superblocks_max) > 0) engine.carry_out_orders();
}

}  // namespace

void add_idle_option(CLI::App& cli, std::optional<double>& seconds) {
  cli.add_option("--memory-idle", seconds,
                 "return memory to the machine that was not needed for this many seconds")
      ->check(CLI::Range(0.0, 1e9));
}

void check_idle(const std::optional<double>& seconds, const RunSettings& settings) {
  if (!seconds) return;
  if (settings.mapping.mode == kernels::MapMode::flat) {
    throw Error(ErrorKind::usage, "--memory-idle: --memory-mode flat gives no memory back");
  }
  if (settings.lanes && !settings.lanes->share_memory) {
    throw Error(ErrorKind::usage,
                "--memory-idle: memory of its own for prompts is not given back; leave one of them "
                "out");
  }
}

IdleMemory::IdleMemory(Engine& engine, const std::optional<double>& seconds, Clock::time_point now)
    : engine_(&engine), begin_(now), superblocks_(engine.usage().pool.superblocks_idle) {
  if (seconds) delay_ = std::chrono::duration<double>(*seconds);
}

void IdleMemory::poll(Clock::time_point now) {
  if (!delay_) return;
  superblocks_ = std::min(superblocks_, engine_->usage().pool.superblocks_idle);
  if (now - begin_ < *delay_) return;
  if (superblocks_ > 0) give_back(*engine_, superblocks_);
  begin_ = now;
  superblocks_ = engine_->usage().pool.superblocks_idle;
}

std::function<bool()> prepare_memory_when_idle(Engine& engine, std::function<bool()> ahead) {
  return [&engine, ahead = std::move(ahead)] {
    if (ahead && ahead()) return true;
    try {
      engine.prepare_memory();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;  // else the next request reports what it lacks
    }
    return false;
  };
}

std::function<bool()> release_memory_when_idle(Engine& engine, std::chrono::duration<double> delay,
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
