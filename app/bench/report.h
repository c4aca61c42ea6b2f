#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "app/bench/bench.h"
#include "app/ui/table.h"
#include "core/base/json.h"

namespace hyb::app {

/// What is the same in all rows.
struct BenchSetting {
  std::string build_commit;
  std::string cpu;
  std::string device;          ///< "cpu"
  std::string isa;             ///< "avx512", ...
  std::string model_filename;  ///< the model's name or folder
  std::string model_type;      ///< "granitemoehybrid BF16"
  std::size_t model_bytes = 0;
  std::int64_t parameters = 0;
  int threads = 0;
  std::int32_t chunk_tokens = 0;
  std::string kv_dtype;  ///< "bf16"
};

/// llama-bench's columns, then achieved bandwidth and FLOP/s and what they are of the probes. A
/// batch column where some row has several sequences, a status column where some row failed.
Table bench_table(const BenchSetting& setting, std::span<const Measurement> rows);

/// llama-bench's keys, then batch, depth, device, bytes_per_s, probe_bytes_per_s, flops_per_s,
/// probe_flops_per_s, status. Rates without a measurement, and probes that were not run, are null.
Json bench_row(const BenchSetting& setting, const Measurement& row);

/// The keys of bench_row as a line of CSV, but for the arrays of samples.
std::string bench_csv_header();
std::string bench_csv_line(const BenchSetting& setting, const Measurement& row);

}  // namespace hyb::app
