#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "app/bench/bench_case.h"
#include "app/model_outline.h"

namespace hyb::app {

/// What cases need to have room on one runner.
struct CaseRoom {
  std::int32_t length = 0;        ///< most tokens of a sequence
  std::int32_t batch = 1;         ///< most sequences
  std::int32_t longest_span = 1;  ///< of prompts and depths, not yet cut into chunks

  void include(const BenchCase& test);
  bool has_room_for(const BenchCase& test) const;
};

/// Sequences of cases on a runner of their own: no tokenizer, no engine. The state at the depth
/// stays in slots that are only read, so every repetition starts there at no cost, and a deeper
/// case goes on from the depth of the one before.
class CaseRun {
 public:
  /// `model` outlives the run. Throws Error(memory).
  CaseRun(BareModel& model, const CaseRoom& room, std::int32_t chunk_tokens);

  /// What the runner is made with.
  static models::RunnerOptions needs(const BareModel& model, const CaseRoom& room,
                                     std::int32_t chunk_tokens);

  /// From now on this case, which there is room for, is run.
  void choose(const BenchCase& test);

  /// Tokens of a sequence in the repetition that ran last, depth included.
  std::span<const TokenId> tokens(std::int32_t sequence) const {
    return std::span(tokens_[static_cast<std::size_t>(sequence)])
        .first(static_cast<std::size_t>(test_.length()));
  }

  /// What the step that ran last drew, in the order of the sequences.
  std::span<const SampledToken> drawn() const { return last_.sampled; }

  /// Runs the steps to the depth that were not run yet. False: a signal asked to stop. This and
  /// repeat() throw Error(runtime) where logits are no numbers: such a model has no speed.
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

  std::int32_t chunk_tokens_, vocab_;
  CaseRoom room_;
  BenchCase test_;
  std::vector<BenchStep> timed_steps_;
  std::vector<std::int32_t> stands_at_;  ///< tokens of each sequence whose state is kept
  models::ModelRunner runner_;
  SamplingParams greedy_;
  StepResult last_;
  std::uint64_t seed_ = 1;
  std::vector<std::vector<TokenId>> tokens_;    ///< of each sequence
  std::vector<std::vector<PageTable>> tables_;  ///< likewise
  std::int32_t first_slot_ = 0;
};

}  // namespace hyb::app
