#pragma once

#include <string>
#include <vector>

#include "app/bench/bench_options.h"
#include "app/bench/cases.h"
#include "app/bench/kernel_bench.h"
#include "app/options.h"

namespace hyb::app {

/// What both kinds of measurement take from the command line.
struct BenchJob {
  ModelOptions model;
  std::int32_t repetitions = 0;  ///< 0: 5 of a test, 3 of a workload
  std::int32_t chunk_tokens = 512;
  std::string output = "md";
  std::string record;   ///< a file for the trace of what was measured; empty: none is written
  std::string svg;      ///< a file for a plot; empty: none is written
  std::string version;  ///< what --version prints
};

/// Opens the model, measures every case and prints the rows. Returns the exit code: 0 where
/// anything was measured, 4 where nothing fit.
int measure_kernels(const BenchJob& job, const std::vector<BenchCase>& cases);
int measure_workloads(const BenchJob& job, const WorkloadOptions& options,
                      const std::vector<RequestCase>& cases);

}  // namespace hyb::app
