#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/bench/card_watch.h"
#include "app/bench/engine_events.h"
#include "app/bench/metered_runner.h"
#include "app/bench/probes.h"
#include "app/bench/request_case.h"
#include "app/bench/request_metrics.h"
#include "core/base/error.h"
#include "core/memory/usage.h"

namespace hyb::app {

/// A workload, run once.
struct Repetition {
  std::vector<RequestRecord> records;
  RequestMetrics metrics;
  EngineEvents events;
  StepTotals steps;
  CardFigures card = {};
};

/// A row of the benchmark: also for a case that could not be run.
struct RequestRow {
  RequestCase test;
  std::string status = "ok";              ///< else why there are no or fewer repetitions or answers
  ErrorKind failure = ErrorKind::memory;  ///< of a row without any answer
  std::string started;                    ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<Repetition> repetitions;
  Ceilings ceilings;
  PoolUsage fullest;  ///< when the pools were at their fullest in a repetition

  bool is_measured() const;
};

/// Of all repetitions together: rates over the sum of the durations, latencies of all answers.
RequestMetrics pooled_metrics(const RequestRow& row, const MetricOptions& options);

/// Sums over the repetitions.
EngineEvents events_of(const RequestRow& row);

CardFigures card_of(const RequestRow& row);

/// What the runner achieved in all repetitions; 0 where nothing was measured.
struct Achieved {
  double bytes_per_s = 0, flops_per_s = 0;  ///< of the least work, over the whole duration
  double roofline_share = 0;  ///< least time under the ceilings, over the whole duration
  double runner_share = 0;    ///< of the duration, inside the runner
};
Achieved achieved_of(const RequestRow& row);

}  // namespace hyb::app
