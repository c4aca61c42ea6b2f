#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "app/bench/bench_case.h"
#include "app/model_outline.h"

namespace hyb::app {

/// The sequences of one case on a runner of their own: no tokenizer, no engine. The state at the
/// depth stays in slots that are only read, so every repetition starts there at no cost.
class CaseRun {
 public:
  /// `model` outlives the run. Throws Error(memory).
  CaseRun(BareModel& model, const BenchCase& test, std::int32_t chunk_tokens);

  /// What the runner of a case is made with.
  static models::RunnerOptions needs(const BareModel& model, const BenchCase& test,
                                     std::int32_t chunk_tokens);

  /// Tokens of a sequence in the repetition that ran last, depth included.
  std::span<const TokenId> tokens(std::int32_t sequence) const {
    return tokens_[static_cast<std::size_t>(sequence)];
  }

  /// Runs the steps to the depth. False: a signal asked to stop.
  bool reach_depth();

  /// Draws new tokens, then runs the timed steps, or the first of them. Nanoseconds, or -1: a
  /// signal asked to stop.
  std::int64_t repeat(std::size_t steps_max = SIZE_MAX);

 private:
  void draw_tokens(std::int32_t from);
  void run(const BenchStep& step);
  /// The first half of the slots holds the state at the depth, the second the running one.
  SlotId depth_slot(std::int32_t sequence) const;
  SlotId live_slot(std::int32_t sequence) const;

  BenchCase test_;
  std::int32_t vocab_;
  std::vector<BenchStep> depth_steps_, timed_steps_;
  models::ModelRunner runner_;
  SamplingParams greedy_;
  std::uint64_t seed_ = 1;
  std::vector<std::vector<TokenId>> tokens_;    ///< of each sequence
  std::vector<std::vector<PageTable>> tables_;  ///< likewise
  std::int32_t first_slot_ = 0;
};

}  // namespace hyb::app
