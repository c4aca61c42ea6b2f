#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/bench/card_watch.h"
#include "app/bench/cases.h"
#include "app/bench/metered_runner.h"
#include "app/runtime/model_outline.h"
#include "core/base/error.h"
#include "models/roofline.h"

namespace hyb::app {

/// Room that cases need on one runner.
struct CaseRoom {
  std::int32_t length = 0;        ///< most tokens of a sequence
  std::int32_t batch = 1;         ///< most sequences
  std::int32_t longest_span = 1;  ///< of prompts and depths, not yet cut into chunks

  void include(const BenchCase& test);
  bool has_room_for(const BenchCase& test) const;
};

/// Sequences of cases on a runner of their own: no tokenizer, no engine. The state at the depth
/// stays in slots that are only read, so every repetition starts there at no cost, and a deeper
/// case continues from the depth of the one before.
class CaseRun {
 public:
  /// `model` outlives the run. Throws Error(memory).
  CaseRun(BareModel& model, const CaseRoom& room, std::int32_t chunk_tokens);

  /// Returns the options with which a runner has this room.
  static models::RunnerOptions needs(const BareModel& model, const CaseRoom& room,
                                     std::int32_t chunk_tokens);

  /// From now on this case, which there is room for, is run.
  void choose(const BenchCase& test);

  /// Tokens of a sequence in the repetition that ran last, depth included.
  std::span<const TokenId> tokens(std::int32_t sequence) const {
    return std::span(tokens_[static_cast<std::size_t>(sequence)])
        .first(static_cast<std::size_t>(test_.length()));
  }

  /// Returns the tokens that the last step drew, in the order of the sequences.
  std::span<const SampledToken> drawn() const { return last_.sampled; }

  /// Runs the steps to the depth that were not run yet. False: a signal asked to stop. This and
  /// repeat() throw Error(runtime) where logits are not numbers: such a model has no speed.
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
  std::vector<std::int32_t> kept_tokens_;  ///< tokens of each sequence whose state is kept
  models::ModelRunner runner_;
  SamplingParams greedy_;
  StepResult last_;
  std::uint64_t seed_ = 1;
  std::vector<std::vector<TokenId>> tokens_;    ///< of each sequence
  std::vector<std::vector<PageTable>> tables_;  ///< likewise
  std::int32_t first_slot_ = 0;
};

}  // namespace hyb::app

namespace hyb {
class TraceRecorder;
}

namespace hyb::app {

/// A row: also for a case that could not be run.
struct Measurement {
  BenchCase test;
  std::string status = "ok";  ///< else why there are no or fewer samples
  std::string started;        ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<std::int64_t> samples_ns = {};
  models::Work work = {};  ///< of one repetition
  Ceilings ceilings = {};

  CardFigures card = {};
  std::optional<ErrorKind> failure = {};  ///< of a row without samples

  bool is_measured() const { return !samples_ns.empty(); }
};

struct KernelBenchOptions {
  std::int32_t repetitions = 5;
  std::int32_t chunk_tokens = 512;
  std::int32_t length_max = 0;  ///< most tokens of a sequence; 0: as the model says
  /// Records every sequence of every repetition that was measured; null: none is recorded.
  TraceRecorder* recorder = nullptr;
  CardMeter* card = nullptr;  ///< null: its sensors can't be read, or there is none
  /// For the first row, whose ceilings hold for all: a card's do not drift as a machine's, and its
  /// probes take longer than many rows.
  bool probes_once = false;
};

/// Measures cases, with probes of the machine between the repetitions.
class KernelBench {
 public:
  KernelBench(BareModel& model, const KernelBenchOptions& options);

  /// A case that does not fit is a row that says so. Check stop_signal() afterwards: an interrupted
  /// case keeps the repetitions it has.
  Measurement run(const BenchCase& test);

  /// These cases are to come: where all of them fit on one runner, they share it, and one that is
  /// deeper than those before it prefills the difference only.
  void expect(std::span<const BenchCase> cases);

  bool has_read_probe() const { return has_read_probe_; }

 private:
  std::string refusal(const BenchCase& test) const;
  std::size_t bytes_for(const CaseRoom& room) const;
  CaseRun& case_run_for(const BenchCase& test);
  void measure(Measurement& row);
  void record(const CaseRun& sequences, const BenchCase& test,
              std::chrono::steady_clock::time_point begin);

  BareModel* model_;
  KernelBenchOptions options_;
  bool has_read_probe_;
  Probes probes_;
  CardWatch card_;
  models::Roofline roofline_;
  CaseRoom room_;  ///< of the runner that cases share
  std::optional<CaseRun> shared_;
  std::optional<CaseRun> alone_;  ///< for a case that has no room on it
  std::int64_t recorded_ = 0;     ///< sequences
};

}  // namespace hyb::app
