#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "app/bench/bench_case.h"
#include "app/bench/probes.h"
#include "app/model_outline.h"
#include "models/roofline.h"

namespace hyb {
class TraceRecorder;
}

namespace hyb::app {

class CaseRun;

/// A row: also for a case that could not be run.
struct Measurement {
  BenchCase test;
  std::string status = "ok";  ///< else why there are no or fewer samples
  std::string started;        ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<std::int64_t> samples_ns;
  models::Work work;  ///< of one repetition
  Ceilings ceilings;

  bool is_measured() const { return !samples_ns.empty(); }
};

struct BenchOptions {
  std::int32_t repetitions = 5;
  std::int32_t chunk_tokens = 512;
  std::int32_t length_max = 0;  ///< most tokens of a sequence; 0: as the model says
  /// Hears of every sequence of every repetition that was measured; null: nobody does.
  TraceRecorder* recorder = nullptr;
};

/// Measures cases, with probes of the machine between the repetitions.
class Bench {
 public:
  Bench(BareModel& model, const BenchOptions& options);

  /// A case that does not fit is a row that says so. Check stop_signal() afterwards: an interrupted
  /// case keeps the repetitions it has.
  Measurement run(const BenchCase& test);

  bool has_read_probe() const { return has_read_probe_; }

 private:
  std::string refusal(const BenchCase& test) const;
  void measure(Measurement& row);
  void record(const CaseRun& sequences, const BenchCase& test,
              std::chrono::steady_clock::time_point begin);

  BareModel* model_;
  BenchOptions options_;
  bool has_read_probe_;
  Probes probes_;
  models::Roofline roofline_;
  std::int64_t recorded_ = 0;  ///< sequences
};

}  // namespace hyb::app
