#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "app/runtime/run_settings.h"
#include "core/engine/engine.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// --memory-idle, for commands that may have memory that they do not need for a while.
void add_idle_option(CLI::App& cli, std::optional<double>& seconds);

/// Throws Error(usage) where memory is not given back: in mode flat, and where prompts have their
/// own.
void check_idle(const std::optional<double>& seconds, const RunSettings& settings);

/// While an engine works: returns superblocks to the machine that were idle for this long.
/// They come back by themselves when they are needed.
class IdleMemory {
 public:
  using Clock = std::chrono::steady_clock;

  /// The engine outlives this. Without seconds nothing is given back.
  IdleMemory(Engine& engine, const std::optional<double>& seconds,
             Clock::time_point now = Clock::now());

  /// Between steps, often. Throws as Engine::carry_out_orders does.
  void poll(Clock::time_point now = Clock::now());

 private:
  Engine* engine_;
  std::optional<std::chrono::duration<double>> delay_;
  Clock::time_point begin_;   ///< since then
  std::int32_t superblocks_;  ///< at least this many were idle all the time
};

/// Work for the time in which a person does nothing (InputRequest::work): first `ahead`, if there
/// is any; then memory is prepared for the next request. The engine outlives the result.
std::function<bool()> prepare_memory_when_idle(Engine& engine, std::function<bool()> ahead);

/// The same where memory is scarce: first `ahead`, if there is any; then, when `delay` has passed
/// since this call, the superblocks that hold nothing go back to the machine. They come back by
/// themselves when they are needed. The engine outlives the result.
std::function<bool()> release_memory_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                               std::function<bool()> ahead);

}  // namespace hyb::app
