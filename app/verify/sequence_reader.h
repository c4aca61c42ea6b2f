#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "app/verify/divergence.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb::app {

/// Runs known tokens, one sequence alone, and shows what the model expected at each.
class SequenceReader {
 public:
  /// All three outlive it. Throws Error(memory) where the pool has no room for a sequence.
  SequenceReader(Runner& runner, MemoryPool& pool, std::span<const TokenId> tokens);

  std::int32_t position() const { return memory_.length(); }

  /// Most rows of one read(): as many as a step of the runner samples.
  std::int32_t rows_max() const { return rows_max_; }

  /// Runs up to `end` without logits. Like read(), throws Error(memory) when the pool is too small
  /// and Error(runtime) when a signal asked to stop.
  void skip_to(std::int32_t end);

  /// Runs the next `count` tokens, 1 to rows_max(): row i has the logits after the i-th of these.
  /// Valid until the next call. Throws Error(runtime) where logits are not numbers.
  std::vector<LogitsRow> read(std::int32_t count);

  /// Goes on from an int8 snapshot of its recurrent state, which the runner has room for.
  void go_through_snapshot();

 private:
  void run(std::int32_t count, bool wants_logits);

  Runner* runner_;
  MemoryPool* pool_;
  std::span<const TokenId> tokens_;
  Memory memory_;
  std::int32_t step_tokens_, rows_max_;
  StepResult result_;
};

}  // namespace hyb::app
