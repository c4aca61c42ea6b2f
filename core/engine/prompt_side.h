#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "core/engine/engine_limits.h"
#include "core/engine/engine_options.h"
#include "core/engine/engine_usage.h"
#include "core/engine/handovers.h"
#include "core/engine/runner.h"
#include "core/engine/scheduler.h"

namespace hyb {

/// Prompts in memory of their own (EngineOptions::link): what an engine has for answers, once more.
class PromptSide {
 public:
  /// `options` as the engine's; `answers` is its own side. All outlive this.
  PromptSide(const EngineOptions& options, const SchedulerLimits& limits, EngineSide answers);
  PromptSide(const PromptSide&) = delete;
  PromptSide& operator=(const PromptSide&) = delete;

  MemoryPool& pool() { return pool_; }
  PrefixCache& prefixes() { return prefixes_; }
  Scheduler& scheduler() { return scheduler_; }
  Handovers& handovers() { return handovers_; }

  /// The step with this plan and these orders has failed, and is no longer under way: its sequences
  /// wait to be computed again, and what its orders were to fill is lost, or everything where the
  /// device lacks memory.
  void fail(std::span<const Assignment> plan, std::span<const Order> orders,
            const std::exception_ptr& error);
  std::int64_t failed_steps() const { return failed_steps_; }

  /// After a failed step: whether it was this side's, and the next one may retry it with less
  /// memory (OomRecovery).
  bool recover(const Error& error);
  /// Tokens were drawn.
  void drew() { recovery_.reset(); }

  std::int32_t running() const { return scheduler_.running() + handovers_.sequences(); }
  void add_to(EngineUsage& usage) const;
  /// `is_idle`: there are no sequences on either side.
  void audit(bool is_idle) const;

 private:
  void carry_out_orders();

  Runner* runner_;
  MemoryPool pool_;
  PrefixCache prefixes_;
  Scheduler scheduler_;
  Handovers handovers_;
  OomRecovery recovery_;
  bool has_failed_ = false;  ///< the last step that failed was this side's
  std::int64_t failed_steps_ = 0;
};

}  // namespace hyb
