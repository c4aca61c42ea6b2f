#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "app/bench/bench_options.h"
#include "app/bench/comparison.h"
#include "app/bench/measure.h"
#include "app/commands/commands.h"
#include "app/machine/device.h"
#include "app/machine/version.h"
#include "app/options/options.h"
#include "app/replay/replay.h"
#include "app/ui/svg_plot.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

struct BenchFlags {
  BenchJob job;
  CompareOptions compare;
  GraphModes graphs;  ///< --graphs; empty: the default
};

/// Flags that only the engine heeds are refused for tests of the model alone.
void check_memory_flags(const CLI::App& cli) {
  for (const char* flag :
       {"--prefix-cache", "--snapshots", "--audit", "--memory-mode", "--pool-memory",
        "--strict-vmm", "--spec", "--draft-steps", "--draft-model", "--draft-branches",
        "--draft-tokens", "--disaggregate", "--prefill-threads", "--decode-threads"}) {
    if (cli.count(flag) == 0) continue;
    throw Error(
        ErrorKind::usage,
        fmt::format("{}: tests of kernels share no pools, keep no prefix, have no drafts and one "
                    "lane; requests may (--dataset-name, --preset)",
                    flag));
  }
}

/// Returns the modes of graphs that every row is measured in.
GraphModes graph_modes_of(const BenchFlags& flags) {
  if (!flags.graphs.empty()) return flags.graphs;
  if (device_of(flags.job.model.device) == kernels::Device::cpu) return {std::nullopt};
  return {models::GraphOptions{}};
}

/// A folder that is not there would be found out when all is measured.
void check_folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code absent;
  if (folder.empty() || std::filesystem::is_directory(folder, absent)) return;
  throw Error(ErrorKind::usage, fmt::format("{}: there is no folder {}", file, folder.string()));
}

int bench_main(const CLI::App& cli, BenchFlags& flags) {
  BenchJob& job = flags.job;
  job.version = version_text();
  job.record = std::exchange(job.model.reuse.record, "");
  job.bench.lab = policy_lab();
  apply_preset(job.bench);
  check_flags(cli, job.bench);
  check_folder_of(job.record);
  check_folder_of(job.bench.svg);
  check_plot_name(job.bench.svg);
  job.bench.graphs = graph_modes_of(flags);
  job.model.graphs = job.bench.graphs.front();
  if (!job.bench.measures_requests()) {
    check_memory_flags(cli);
    job.model.speculation.is_heeded = false;
    return measure_kernels(job);
  }
  if (!job.record.empty() && (job.bench.measures_mix() || job.bench.measures_shift())) {
    throw Error(ErrorKind::usage, "--record: means nothing for --preset " + job.bench.preset);
  }
  if (job.bench.measures_mix()) return measure_mix(job);
  if (job.bench.measures_shift()) return measure_shift(job);
  if (job.bench.scramble && job.model.reuse.audit) {
    throw Error(ErrorKind::usage, "--scramble: holds memory that --audit does not know of");
  }
  return measure_requests(job);
}

const CLI::App* describe_compare(CLI::App& cli, CompareOptions& job) {
  CLI::App* const compare = cli.add_subcommand(
      "compare", "Compare two outputs of -o json; exit 6 where the second is worse");
  compare->add_option("before", job.before, "a file")->type_name("FILE")->required();
  compare->add_option("after", job.after, "a file")->type_name("FILE")->required();
  compare
      ->add_option("--threshold", job.threshold_percent,
                   "ignore changes of less than this many percent")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  compare
      ->add_option("--alpha", job.alpha,
                   "ignore changes that chance brings about with this probability or a larger one")
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
  add_speculation_options(cli, job.model.speculation);
  add_lane_options(cli, job.model.lanes);
  add_bench_options(cli, job.bench);
  const CLI::App* const compare = describe_compare(cli, options->compare);
  return [options, &cli, compare] {
    return compare->parsed() ? compare_files(options->compare) : bench_main(cli, *options);
  };
}

}  // namespace

const Command bench_command = {"bench", "Measure speed against what the machine can do",
                               describe_bench};

}  // namespace hyb::app
