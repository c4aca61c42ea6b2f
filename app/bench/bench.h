#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/bench/bench_case.h"
#include "app/bench/card_watch.h"
#include "app/bench/case_run.h"
#include "app/bench/probes.h"
#include "app/model_outline.h"
#include "core/base/error.h"
#include "models/roofline.h"

namespace hyb {
class TraceRecorder;
}

namespace hyb::app {

/// A row: also for a case that could not be run.
struct Measurement {
  BenchCase test;
  std::string status = "ok";  ///< else why there are no or fewer samples
  std::string started;        ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<std::int64_t> samples_ns;
  models::Work work;  ///< of one repetition
  Ceilings ceilings;

  CardFigures card = {};
  std::optional<ErrorKind> failure = {};  ///< of a row without samples

  bool is_measured() const { return !samples_ns.empty(); }
};

struct BenchOptions {
  std::int32_t repetitions = 5;
  std::int32_t chunk_tokens = 512;
  std::int32_t length_max = 0;  ///< most tokens of a sequence; 0: as the model says
  /// Hears of every sequence of every repetition that was measured; null: nobody does.
  TraceRecorder* recorder = nullptr;
  CardMeter* card = nullptr;  ///< null: its sensors can't be read, or there is none
};

/// Measures cases, with probes of the machine between the repetitions.
class Bench {
 public:
  Bench(BareModel& model, const BenchOptions& options);

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
  BenchOptions options_;
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
