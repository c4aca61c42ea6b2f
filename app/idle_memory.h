#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "app/options.h"
#include "core/engine/engine.h"

namespace hyb::app {

/// --memory-idle, for commands that may have memory that they do not need for a while.
void add_idle_option(CLI::App& cli, std::optional<double>& seconds);

/// Throws Error(usage) where the memory mode gives nothing back.
void check_idle(const std::optional<double>& seconds, const PoolOptions& pools);

/// While an engine works: gives the superblocks back to the machine that nobody needed for so long.
/// They come back by themselves when they are needed.
class IdleMemory {
 public:
  using Clock = std::chrono::steady_clock;

  /// The engine outlives this. Without seconds nothing is given back.
  IdleMemory(Engine& engine, const std::optional<double>& seconds,
             Clock::time_point now = Clock::now());

  /// Between steps, often. Throws as Engine::carry_out_orders does.
  void look(Clock::time_point now = Clock::now());

 private:
  Engine* engine_;
  std::optional<std::chrono::duration<double>> delay_;
  Clock::time_point begin_;   ///< since then
  std::int32_t superblocks_;  ///< at least so many were idle all the time
};

/// Work for the time in which a person does nothing (Asking::work): first `ahead`, if there is any;
/// then, when `delay` has passed since this call, the superblocks that hold nothing go back to the
/// machine. They come back by themselves when they are needed. The engine outlives the result.
std::function<bool()> give_back_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                          std::function<bool()> ahead);

}  // namespace hyb::app
