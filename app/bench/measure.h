#pragma once

#include <optional>
#include <string>

#include "app/bench/bench_options.h"
#include "app/options.h"

namespace hyb::app {

/// What both kinds of measurement take from the command line.
struct BenchJob {
  ModelOptions model;
  BenchOptions bench;
  std::string record;   ///< a file for the trace of what was measured; empty: none is written
  std::string version;  ///< what --version prints
};

/// Opens the model, measures every case and prints the rows. Returns the exit code: 0 where
/// anything was measured, 4 where nothing fit.
int measure_kernels(const BenchJob& job);
int measure_requests(const BenchJob& job);
/// --preset pd-mix: the same mix of requests with one lane and with two, in turns.
int measure_mix(const BenchJob& job);
/// --preset elastic-shift: elastic memory and fixed ratios under load that shifts, in turns.
int measure_shift(const BenchJob& job);

/// What --memory leaves for the model next to the buffer of the read probe; nothing: too little
/// for both.
std::optional<std::string> memory_beside_probe(const ModelOptions& options);

}  // namespace hyb::app
