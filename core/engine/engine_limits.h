#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

/// Throws Error(usage) for options that are out of range.
void check_engine(const Capacity& capacity, const EngineOptions& options);

/// A bug of the runner's: it did not answer `rows` rows from the vocabulary.
void check_result(const StepResult& result, std::size_t rows, std::int32_t vocab);

/// The longest sequence of up to `asked` tokens that fits when it has all memory to itself, run
/// token by token if need be. Throws Error(memory) when not even 2 tokens fit.
std::int32_t length_limit(const MemoryPool& pool, std::int32_t asked);

/// Throws Error(memory), with the figures, for a prompt that `asked` would allow and the memory,
/// which holds sequences of `length_max` tokens, does not.
void check_fits(const MemoryPool& pool, std::int64_t prompt_tokens, std::int32_t length_max,
                std::int32_t asked);

/// What an engine does where the device lacks memory for a step.
class OomRecovery {
 public:
  /// After a failed step that released all it had. True: the runner gives way, and the memory of
  /// an eighth of the superblocks, of those that have some, goes back to the device for good; the
  /// next step may run what the failed one was to run. False: the error is no such one, or it came
  /// again before a token was drawn: then that did not help.
  bool recover(MemoryPool& pool, Runner& runner, const Error& error);

  /// Tokens were drawn.
  void reset() { is_short_ = false; }

 private:
  bool is_short_ = false;
};

/// Of Error(memory): the same with what the runner holds.
Error with_holdings(const Error& error, const Runner& runner);

}  // namespace hyb
