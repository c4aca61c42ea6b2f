#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "app/bench/bench.h"
#include "app/bench/bench_setting.h"
#include "app/ui/table.h"
#include "core/base/json.h"

namespace hyb::app {

/// llama-bench's columns, then achieved bandwidth and FLOP/s and what they are of the probes. A
/// batch column where some row has several sequences, a status column where some row failed.
Table bench_table(const BenchSetting& setting, std::span<const Measurement> rows);

/// llama-bench's keys, then batch, depth, device, bytes_per_s, probe_bytes_per_s, flops_per_s,
/// probe_flops_per_s, status. Rates without a measurement, and probes that were not run, are null.
Json bench_row(const BenchSetting& setting, const Measurement& row);

}  // namespace hyb::app
