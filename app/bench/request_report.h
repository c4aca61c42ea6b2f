#pragma once

#include <span>
#include <string>

#include "app/bench/bench_setting.h"
#include "app/bench/request_row.h"
#include "app/ui/table.h"
#include "core/base/json.h"

namespace hyb::app {

/// What is the same in all rows of a run of workloads.
struct WorkloadSetting {
  BenchSetting model;
  MetricOptions metrics;
  std::uint64_t seed = 0;
  double burstiness = 1;
  bool ignore_eos = false;
  std::size_t weight_bytes = 0, workspace_bytes = 0;  ///< memory beside the pools
  std::string note;                                   ///< what a reader has to know; may be empty
};

/// A row under the keys of vLLM's `bench serve --save-detailed`, then ours: condition, repetitions
/// and their spread, reuse, events, achieved rates, memory by owner, status. Rates that were not
/// measured are null. `itls` and `ttfts` are seconds, as vLLM's.
Json request_row_json(const WorkloadSetting& setting, const RequestRow& row);

/// vLLM's block of figures, label for label, with ours behind it.
std::string request_row_text(const WorkloadSetting& setting, const RequestRow& row);

/// A line per row.
Table request_table(const WorkloadSetting& setting, std::span<const RequestRow> rows);

/// TTFT and TPOT of policies, each against policy none of the same experiment; no lines where there
/// is none to compare with.
Table policy_table(std::span<const RequestRow> rows);

}  // namespace hyb::app
