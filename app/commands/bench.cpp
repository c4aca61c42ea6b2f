#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "app/bench/bench_options.h"
#include "app/bench/comparison.h"
#include "app/bench/measure.h"
#include "app/commands/commands.h"
#include "app/options.h"
#include "app/version.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

struct BenchFlags {
  BenchJob job;
  KernelOptions kernels;
  WorkloadOptions workload;
  CompareJob compare;
  std::vector<std::string> graphs;  ///< --graphs; empty: the default
};

[[noreturn]] void refuse(const std::string& flag, const char* why) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", flag, why));
}

/// The flag that was given of those that only an engine heeds; "": none was.
std::string given_memory_flag(const CLI::App& cli) {
  for (const char* flag : {"--prefix-cache", "--snapshots", "--audit", "--memory-mode",
                           "--pool-memory", "--strict-vmm"}) {
    if (cli.count(flag) > 0) return flag;
  }
  return "";
}

/// The modes of --graphs that every row is measured in; empty text: no card, no mode.
std::vector<std::string> graph_modes_of(const BenchFlags& options) {
  if (!options.graphs.empty()) return options.graphs;
  return {device_of(options.job.model.device) == kernels::Device::cpu ? "" : "full+piecewise"};
}

int bench_main(const CLI::App& cli, BenchFlags& options) {
  options.job.version = version_text();
  options.job.record = std::exchange(options.job.model.reuse.record, "");
  const std::vector<std::string> graphs = graph_modes_of(options);
  options.job.model.graphs = graphs.front();
  options.kernels.graphs = options.workload.graphs = graphs;
  if (!options.workload.is_wanted()) {
    const std::string flag = given_workload_flag(cli);
    if (!flag.empty()) refuse(flag, "is for requests: name them with --dataset-name or --preset");
    const std::string memory_flag = given_memory_flag(cli);
    if (!memory_flag.empty()) {
      refuse(memory_flag,
             "tests of kernels have no pools that are shared and remember no prefix; "
             "requests do (--dataset-name, --preset)");
    }
    return measure_kernels(options.job, cases_of(options.kernels));
  }
  const std::string flag = given_kernel_flag(cli);
  if (!flag.empty()) refuse(flag, "is for tests of kernels: leave --dataset-name and --preset out");
  if (options.workload.scramble && options.job.model.reuse.audit) {
    refuse("--scramble", "holds memory that --audit does not know of");
  }
  apply_preset(options.workload);
  return measure_workloads(options.job, options.workload, cases_of(options.workload));
}

const CLI::App* describe_compare(CLI::App& cli, CompareJob& job) {
  CLI::App* const compare = cli.add_subcommand(
      "compare", "Compare two outputs of -o json; exit 6 where the second is worse");
  compare->add_option("before", job.before, "a file")->required();
  compare->add_option("after", job.after, "a file")->required();
  compare->add_option("--threshold", job.threshold_percent, "percent: smaller changes are none")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  compare->add_option("--alpha", job.alpha, "changes that chance brings about as often are none")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  return compare;
}

Action describe_bench(CLI::App& cli) {
  const auto options = std::make_shared<BenchFlags>();  // CLI11 keeps pointers into it
  BenchJob& job = options->job;
  add_model_options(cli, job.model);
  add_graphs_option(cli, options->graphs);
  add_reuse_options(cli, job.model.reuse);
  add_pool_options(cli, job.model.pools);
  add_kernel_options(cli, options->kernels);
  add_workload_options(cli, options->workload);
  cli.add_option("-r,--repetitions", job.repetitions,
                 "how often each row is measured; else 5, 3 of requests")
      ->check(CLI::Range(1, 10000));
  cli.add_option("-u,--ubatch", job.chunk_tokens, "prompt tokens of one step")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  cli.add_option("-o,--output", job.output, "md, csv, json, jsonl or sql")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl", "sql"}))
      ->capture_default_str();
  cli.add_option("--svg", job.svg,
                 "write a plot: rates over depth, latency over throughput, of a trace hit rates "
                 "over time");
  const CLI::App* const compare = describe_compare(cli, options->compare);
  return [options, &cli, compare] {
    return compare->parsed() ? compare_files(options->compare) : bench_main(cli, *options);
  };
}

}  // namespace

const Command bench_command = {"bench", "Measure speed against what the machine can do",
                               describe_bench};

}  // namespace hyb::app
