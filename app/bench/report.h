#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "app/bench/bench_setting.h"
#include "app/bench/kernel_bench.h"
#include "app/bench/request_metrics.h"
#include "app/ui/table.h"
#include "core/base/json.h"

namespace hyb::app {

/// Null for a rate that was not measured.
Json number_or_null(double value);

/// Rows in the chosen format. Lines of JSON go to stdout as they are added, an array when all are
/// there.
class RowOutput {
 public:
  /// json or jsonl; rows of other formats are only kept.
  explicit RowOutput(std::string format) : format_(std::move(format)) {}

  void add(Json row);
  void finish() const;

  const Json& rows() const { return rows_; }

 private:
  std::string format_;
  Json rows_ = Json::array();
};

/// True if `value(row)` is not the same for all rows: then a table or a plot has to show it.
template <typename Rows, typename Value>
bool varies(const Rows& rows, Value&& value) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return value(row) != value(rows.front()); });
}

/// True if rows were measured in several modes of --graphs.
template <typename Rows>
bool varies_in_graphs(const Rows& rows) {
  return varies(rows, [](const auto& row) { return row.test.graphs; });
}

/// llama-bench's columns, then achieved bandwidth and FLOP/s and what they are of the probes. A
/// batch column where some row has several sequences, a status column where some row failed.
Table bench_table(const BenchSetting& setting, std::span<const Measurement> rows);

/// llama-bench's keys, then batch, depth, device, bytes_per_s, probe_bytes_per_s, flops_per_s,
/// probe_flops_per_s, status. Rates without a measurement, and probes that were not run, are null.
Json bench_row(const BenchSetting& setting, const Measurement& row);

/// Setting that all rows of a run of workloads share.
struct WorkloadSetting {
  BenchSetting model;
  MetricOptions metrics;
  std::uint64_t seed = 0;
  double burstiness = 1;
  bool ignore_eos = false;
  std::size_t weight_bytes = 0, workspace_bytes = 0;  ///< memory outside the pools
  std::string note;                                   ///< what a reader has to know; may be empty
};

/// A row under the keys of vLLM's `bench serve --save-detailed`, then ours: condition, repetitions
/// and their spread, reuse, events, achieved rates, memory by owner, status. Rates that were not
/// measured are null. `itls` and `ttfts` are seconds, as vLLM's.
Json request_row_json(const WorkloadSetting& setting, const RequestRow& row);

/// vLLM's block of figures, label for label, followed by ours.
std::string request_row_text(const WorkloadSetting& setting, const RequestRow& row);

/// A line per row.
Table request_table(const WorkloadSetting& setting, std::span<const RequestRow> rows);

/// TTFT and TPOT of policies, each against policy none of the same experiment; no lines where there
/// is none to compare with.
Table policy_table(std::span<const RequestRow> rows);

}  // namespace hyb::app
