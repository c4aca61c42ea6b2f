#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/engine/engine_options.h"
#include "core/engine/runner.h"
#include "core/engine/scheduler.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

/// Returns whether it is an Error(memory).
bool lacks_memory(const std::exception_ptr& error);

/// Throws Error(usage) for options that are out of range.
void check_engine(const Capacity& capacity, const EngineOptions& options);

/// The memory of sequences, elastic or with the options' fixed share.
MemoryLayout pool_layout(const Capacity& capacity, const EngineOptions& options);

/// Returns what steps of the runner and the options allow.
SchedulerLimits scheduler_limits(const Capacity& capacity, const EngineOptions& options);

/// Throws where the runner did not return `rows` tokens of the vocabulary: a bug of the runner's.
void check_result(const StepResult& result, std::size_t rows, std::int32_t vocab);

/// The longest sequence of up to `asked` tokens that fits when it has all memory to itself, run
/// token by token if necessary. Throws Error(memory) when not even 2 tokens fit.
std::int32_t length_limit(const MemoryPool& pool, std::int32_t asked);

/// Throws Error(memory), with the figures, for a prompt that `asked` would allow but not the
/// memory, which holds sequences of `length_max` tokens.
void check_fits(const MemoryPool& pool, std::int64_t prompt_tokens, std::int32_t length_max,
                std::int32_t asked);

/// Decides what an engine does when the device lacks memory for a step.
class OomRecovery {
 public:
  /// Call it after a failed step that released all memory. True: the runner releases its caches,
  /// and the memory of an eighth of the superblocks that have some is released to the device for
  /// good; the next step may retry. False: the error is another one, or it came again before a
  /// token was drawn, so that this did not help.
  bool recover(MemoryPool& pool, Runner& runner, const Error& error);

  /// Tokens were drawn.
  void reset() { is_short_ = false; }

 private:
  bool is_short_ = false;
};

/// Error(memory) with what the runner holds added to the message; other errors unchanged.
Error with_holdings(const Error& error, const Runner& runner);

}  // namespace hyb
