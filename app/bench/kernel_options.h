#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/bench/bench_case.h"

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

}  // namespace hyb::app
