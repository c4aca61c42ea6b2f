#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/bench/cases.h"
#include "app/bench/request_metrics.h"

namespace hyb::app {

/// llama-bench's tests, as the command line asks for them.
struct KernelOptions {
  std::vector<std::string> prompts = {"512"};
  std::vector<std::string> generations = {"128"};
  std::vector<std::string> pairs;
  std::vector<std::string> depths = {"0"};
  std::vector<std::string> batches = {"1"};
  std::vector<std::string> graphs = {""};  ///< modes that every test is measured in
};

/// Adds -p, -n, -pg, -d, -b. The options outlive `cli`.
void add_kernel_options(CLI::App& cli, KernelOptions& options);

/// The flag among these that was given; "": none was. They are of no use with a dataset.
std::string given_kernel_flag(const CLI::App& cli);

/// Throws Error(usage) for values out of range, and where nothing is left to measure.
std::vector<BenchCase> cases_of(const KernelOptions& options);

/// A request workload as the command line asks for it. Lists are as -p's; an empty one is the
/// preset's or the dataset's own.
struct WorkloadOptions {
  std::string dataset, preset;
  std::string path;  ///< of a corpus, a batch file, a trace
  std::string text;  ///< of send_one
  std::vector<std::string> prompts, groups, system_tokens, input_tokens, output_tokens;
  std::vector<std::string> concurrencies;
  std::string request_rates;
  std::vector<std::string> conditions, policies;
  std::vector<std::string> graphs;  ///< modes that every row is measured in; empty: no matter
  double burstiness = 1, range_ratio = 0;
  std::int32_t question_tokens = 64;
  std::int32_t warm_up_requests = 0;
  std::int32_t scale_down = 1;
  bool ignore_eos = false;
  bool trace_times = false;
  bool in_turns = false;
  std::optional<std::uint64_t> scramble;
  std::uint64_t seed = 0;
  std::string percentages = "90,95,99";
  std::vector<std::string> goals;

  bool is_wanted() const { return !dataset.empty() || !preset.empty(); }
};

/// Adds the flags of vLLM's and SGLang's benchmarks, and ours. The options outlive `cli`.
void add_workload_options(CLI::App& cli, WorkloadOptions& options);

/// The flag among these that was given; "": none was. They are of no use without a dataset.
std::string given_workload_flag(const CLI::App& cli);

/// Fills in what the preset says and the command line does not. Throws Error(usage) for an unknown
/// one.
void apply_preset(WorkloadOptions& options);

/// All rows. Throws Error(usage) for values out of range, and for those that the dataset lacks.
std::vector<RequestCase> cases_of(const WorkloadOptions& options);

}  // namespace hyb::app
