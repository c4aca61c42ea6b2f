#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/cases.h"
#include "app/bench/lane_mix.h"
#include "app/bench/simulated_policy.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// Options of `hyb bench`, as typed. A list of counts holds texts such as "128,512" or "64-4096*2";
/// of requests, an empty one is the preset's or the dataset's own.
struct BenchOptions {
  // Both kinds of measurement.
  std::int32_t repetitions = 0;   ///< 0: 5 of a test, 3 of a workload
  std::int32_t chunk_tokens = 0;  ///< 0: as other commands
  std::string output = "text";
  std::string svg;                     ///< a file for a plot; empty: none is written
  GraphModes graphs = {std::nullopt};  ///< that every row is measured in

  // llama-bench's tests of the model alone.
  std::vector<std::string> prompt_lengths = {"512"};
  std::vector<std::string> generation_lengths = {"128"};
  std::vector<std::string> pairs;
  std::vector<std::string> depths = {"0"};
  std::vector<std::string> batches = {"1"};

  // Requests on the engine.
  std::string dataset, preset;
  std::string path;  ///< of a corpus, a batch file, a trace
  std::string text;  ///< of send_one
  std::vector<std::string> prompts, groups, system_tokens, input_tokens, output_tokens;
  std::vector<std::string> concurrencies;
  std::string request_rates;
  std::vector<std::string> conditions, policies, spec_acceptances, lanes;
  std::vector<std::string> state_shares;  ///< of elastic-shift; empty: its own
  std::int32_t running_answers = 0;       ///< of pd-mix; 0: its own
  double burstiness = 1, range_ratio = 0;
  std::int32_t question_tokens = 64;
  std::int32_t warm_up_requests = 0;
  std::int32_t scale_down = 1;
  bool ignore_eos = false;
  bool trace_times = false;
  bool interleaved = false;
  std::optional<std::uint64_t> scramble;
  std::uint64_t seed = 0;
  std::string percentages = "90,95,99";
  std::vector<std::string> goals;
  PolicyLab lab = {};  ///< no flag: the policies that `policies` may name beside the engine's own

  bool measures_mix() const { return preset == "pd-mix"; }           ///< a LaneMix
  bool measures_shift() const { return preset == "elastic-shift"; }  ///< an ElasticShift
  bool measures_requests() const { return !dataset.empty() || !preset.empty(); }
  /// True if some row has a lane of its own for prompts, whatever --disaggregate says.
  bool names_second_lane() const;
};

/// Adds the flags of llama-bench, of vLLM's and SGLang's benchmarks, and ours: a row each of one
/// table. The options outlive `cli`.
void add_bench_options(CLI::App& cli, BenchOptions& options);

/// Throws Error(usage) naming a flag that was given and has no meaning for what is measured: a test
/// of the model alone, or requests of this dataset. The preset has been applied.
void check_flags(const CLI::App& cli, const BenchOptions& options);

/// Fills in what the preset says and the command line does not. Throws Error(usage) for an unknown
/// one.
void apply_preset(BenchOptions& options);

/// All tests of the model alone. Throws Error(usage) for values out of range, and where nothing is
/// left to measure.
std::vector<BenchCase> kernel_cases(const BenchOptions& options);

/// Returns the workload of --preset pd-mix. Throws Error(usage) for values out of range.
LaneMix lane_mix(const BenchOptions& options);

/// All rows of requests. Throws Error(usage) for values out of range, and for what is missing.
std::vector<RequestCase> request_cases(const BenchOptions& options);

}  // namespace hyb::app
