#include "app/bench/kernel_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"

namespace hyb::app {

void add_kernel_options(CLI::App& cli, KernelOptions& options) {
  const auto add_list = [&](const char* names, std::vector<std::string>& list, const char* about) {
    cli.add_option(names, list, about)
        ->allow_extra_args(false)
        ->capture_default_str()
        ->group("Kernels");
  };
  add_list("-p,--n-prompt", options.prompts,
           "prompt lengths: 512 or 128,512 or 64-4096*2; 0: none");
  add_list("-n,--n-gen", options.generations, "tokens to generate, likewise");
  add_list("--pg", options.pairs, "PP,TG: a prompt and an answer in one test; -pg too");
  add_list("-d,--n-depth", options.depths, "tokens that stand in memory before each test");
  add_list("-b,--batch", options.batches, "sequences that generate at once");
}

std::string given_kernel_flag(const CLI::App& cli) {
  for (const char* flag : {"--n-prompt", "--n-gen", "--pg", "--n-depth", "--batch"}) {
    if (cli.count(flag) > 0) return flag;
  }
  return "";
}

std::vector<BenchCase> cases_of(const KernelOptions& options) {
  BenchGrid grid = {.prompts = parse_counts(options.prompts, "-p"),
                    .generations = parse_counts(options.generations, "-n"),
                    .depths = parse_counts(options.depths, "-d"),
                    .batches = parse_counts(options.batches, "-b"),
                    .pairs = {},
                    .graphs = options.graphs};
  for (const std::string& pair : options.pairs) grid.pairs.push_back(parse_pair(pair, "-pg"));
  for (const std::int32_t batch : grid.batches) {
    if (batch < 1 || batch > 4096) {
      throw Error(ErrorKind::usage, fmt::format("-b: {} is not from 1 to 4096", batch));
    }
  }
  std::vector<BenchCase> cases = cases_of(grid);
  if (cases.empty()) {
    throw Error(ErrorKind::usage, "bench: nothing to measure; -p, -n or -pg name a test");
  }
  const auto generates = [](const BenchCase& test) { return test.generate > 0; };
  if (grid.batches != std::vector<std::int32_t>{1} &&
      std::none_of(cases.begin(), cases.end(), generates)) {
    throw Error(ErrorKind::usage, "-b: counts sequences that generate at once; -n or -pg is 0");
  }
  return cases;
}

}  // namespace hyb::app
