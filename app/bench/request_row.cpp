#include "app/bench/request_row.h"

#include <algorithm>

namespace hyb::app {

bool RequestRow::is_measured() const {
  return std::any_of(repetitions.begin(), repetitions.end(),
                     [](const Repetition& one) { return one.metrics.completed > 0; });
}

RequestMetrics pooled_metrics(const RequestRow& row, const MetricOptions& options) {
  std::vector<RequestRecord> records;
  double duration_s = 0, best_second = 0;
  std::int64_t most_at_once = 0;
  for (const Repetition& one : row.repetitions) {
    records.insert(records.end(), one.records.begin(), one.records.end());
    duration_s += one.metrics.duration_s;
    best_second = std::max(best_second, one.metrics.output_tokens_per_s_max);
    most_at_once = std::max(most_at_once, one.metrics.requests_at_once_max);
  }
  RequestMetrics all = metrics_of(records, duration_s, options);
  all.output_tokens_per_s_max = best_second;
  all.requests_at_once_max = most_at_once;
  return all;
}

EngineEvents events_of(const RequestRow& row) {
  EngineEvents sum;
  for (const Repetition& one : row.repetitions) sum += one.events;
  return sum;
}

CardFigures card_of(const RequestRow& row) {
  CardFigures all;
  for (const Repetition& one : row.repetitions) all.add(one.card);
  return all;
}

Achieved achieved_of(const RequestRow& row) {
  double duration_s = 0, bound_s = 0, inside_s = 0;
  models::Work work;
  for (const Repetition& one : row.repetitions) {
    duration_s += one.metrics.duration_s;
    bound_s += one.steps.bound_s(row.ceilings);
    inside_s += std::chrono::duration<double>(one.steps.inside).count();
    work += one.steps.work;
  }
  if (duration_s <= 0) return {};
  return {.bytes_per_s = work.bytes / duration_s,
          .flops_per_s = work.flops / duration_s,
          .roofline_share = bound_s / duration_s,
          .runner_share = inside_s / duration_s};
}

}  // namespace hyb::app
