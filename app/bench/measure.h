#pragma once

#include <span>
#include <string>
#include <string_view>

#include "app/bench/bench_options.h"
#include "app/bench/request_metrics.h"
#include "app/options/options.h"
#include "app/runtime/run_settings.h"
#include "app/ui/table.h"

namespace hyb::app {

/// Options that both kinds of measurement share.
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

/// True if this --output is text for people and no JSON.
bool is_for_people(std::string_view format);

/// A table in it: Markdown with all columns, or fitted to the terminal.
std::string shown_text(const Table& table, std::string_view format);

/// A line where figures mean little: the relative deviation of a row's repetitions is over a tenth,
/// or others kept more than half of the processors busy when the run began. Empty: neither.
std::string doubt_text(std::span<const double> spreads, double load, int processors);

/// A line where answers have fewer tokens than were requested, else empty.
std::string early_end_text(std::span<const RequestRow> rows);

/// Leaves room next to the model for the buffer of the read probe. False: --memory is too little
/// for both.
bool make_room_for_probe(RunSettings& settings);

}  // namespace hyb::app
