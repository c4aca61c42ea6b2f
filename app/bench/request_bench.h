#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "app/bench/card_watch.h"
#include "app/bench/load_driver.h"
#include "app/bench/metered_runner.h"
#include "app/bench/request_metrics.h"
#include "app/bench/simulated_policy.h"
#include "app/bench/workload.h"
#include "app/runtime/session.h"
#include "core/engine/drafter.h"
#include "core/engine/engine.h"
#include "core/engine/trace.h"

namespace hyb::app {

/// Brings an idle engine's pools into the state of one that has run for long: what is free lies
/// scattered, and here and there a page or a slot is held as long as this lives. Sequences that run
/// afterwards get pages far apart. The engine outlives it.
class ScrambledPool {
 public:
  ScrambledPool(Engine& engine, std::uint64_t seed);

  /// Sequences that stay.
  std::size_t held() const { return held_.size(); }

 private:
  std::vector<Memory> held_;
};

}  // namespace hyb::app

namespace hyb {
class TraceRecorder;
}

namespace hyb::app {

struct RequestBenchOptions {
  std::int32_t repetitions = 3;
  std::uint64_t seed = 0;
  double burstiness = 1;
  std::int32_t question_tokens = 64;  ///< of the next turn, in rows of turn 2
  std::int32_t warm_up_requests = 0;  ///< 0: as many as run at once
  MetricOptions metrics;
  PromptMaterial material;
  ReuseOptions reuse;
  std::vector<ReplayRequest> trace = {};  ///< of Dataset::trace
  bool trace_times = false;               ///< its requests come when it says
  PredictReuse predict = {};              ///< of Dataset::trace: reuse of simulated policies
  std::optional<std::uint64_t> scramble;  ///< pools are in pieces before each repetition
  CardMeter* card = nullptr;              ///< null: its sensors can't be read, or there is none
  TraceRecorder* recorder = nullptr;      ///< records every request that is measured
  std::function<void(const std::string&)> progress = {};  ///< what it is at
};

/// Drafts the answers that requests had before, each token right with the same probability: what
/// drafts cost and yield, whatever else would guess them, or in the place of what a model drafted,
/// which has cost what it costs. Where there may be branches, every further token in the place of a
/// draft is right with that probability if those before it are wrong.
class RightDrafts final : public Drafter {
 public:
  /// `answers`: of the first choice of each request of a workload.
  RightDrafts(std::vector<std::vector<TokenId>> answers, double right_share, std::int32_t vocab,
              std::uint64_t seed);

  /// Request i of the workload; of others nothing is known.
  void add(RequestId id, std::size_t i, const std::vector<TokenId>& prompt);

  /// Replaces what the model drafted for the spans of a step, whose requests have one choice each.
  void replace(const Step& step, std::vector<std::vector<SampledToken>>& drafts);

  void draft(std::span<DraftJob> jobs) override;
  bool may_draft_after_next(const ArrivalOrder& sequence, std::span<const TokenId> tokens) override;
  void forget(const ArrivalOrder&) override {}

 private:
  struct Known {
    std::size_t answer, prompt_tokens;
  };
  std::span<const TokenId> rest_of(const ArrivalOrder& sequence, std::size_t tokens) const;
  std::span<const TokenId> rest_of(const Known& known, std::size_t tokens) const;
  SampledToken guess(TokenId right, std::int32_t guesses);

  std::vector<std::vector<TokenId>> answers_;
  std::map<RequestId, Known> known_;
  std::map<std::vector<TokenId>, Known> by_prompt_;
  double right_share_;
  std::int32_t vocab_;
  std::mt19937_64 random_;
};

/// Measures workloads on a session's engine, with probes of the machine between repetitions.
class RequestBench {
 public:
  /// The session and the probes outlive it.
  RequestBench(Session& session, Probes& probes, RequestBenchOptions options);

  /// Throws Error(memory) where no request of these cases fits into the context. Traces are left
  /// to be measured.
  void check_lengths(std::span<const RequestCase> cases) const;

  /// Row `number` of the run. A case that cannot be run is a row that says so. Check stop_signal()
  /// afterwards: an interrupted case keeps the repetitions it has.
  RequestRow run(const RequestCase& test, std::uint64_t number);

  /// All rows of the run, repetition after repetition: what drifts in the machine is then in the
  /// spread of each row, not between rows. `announce(number)` comes before each. All rows have the
  /// ceilings that were probed in the whole run. A row that could not be run is not tried again.
  /// After a signal to stop, rows that have not begun are left out, as where run() is not called
  /// for them; those that have keep the repetitions they have.
  std::vector<RequestRow> run_interleaved(std::span<const RequestCase> cases,
                                          const std::function<void(std::size_t)>& announce);

 private:
  ReuseOptions reuse_for(const RequestCase& test) const;
  LoadResult run_work(const RequestCase& test, RequestSource& source,
                      const std::function<void(std::size_t)>& progress);
  void warm_up(const RequestCase& test, std::uint64_t number);
  std::unique_ptr<RequestSource> source_of(const RequestCase& test, const DrawSeed& seed);
  void learn_answers(const RequestCase& test, const DrawSeed& seed);
  SpeculationOptions speculation_for(const RequestCase& test) const;
  std::vector<WorkItem> prepare(const RequestCase& test, const DrawSeed& seed);
  void prime(const RequestCase& test, const std::vector<WorkItem>& work);
  void attempt(RequestRow& row, const std::function<void()>& measure) const;
  void get_ready(const RequestCase& test, std::uint64_t number);
  void measure(RequestRow& row, std::uint64_t number);
  void settle(RequestRow& row) const;
  bool repeat(RequestRow& row, const DrawSeed& seed);
  bool measure_load(RequestRow& row, RequestSource& source);
  bool measure_policy(RequestRow& row);
  std::span<const ReplayRequest> trace_of(const RequestCase& test) const;
  EngineEvents events() const;
  void watch_memory(RequestRow& row);

  Session& session_;
  Probes& probes_;
  RequestBenchOptions options_;
  MeteredRunner meter_;
  CardWatch card_;
  SteadyTimer timer_;
  std::vector<WorkItem> work_;            ///< of the repetition that runs
  std::unique_ptr<RightDrafts> drafter_;  ///< of this repetition; null: as --spec says
  Timer::TimePoint next_look_;            ///< at memory
};

}  // namespace hyb::app
