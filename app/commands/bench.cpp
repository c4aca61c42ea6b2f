#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/bench.h"
#include "app/bench/report.h"
#include "app/commands/commands.h"
#include "app/environment.h"
#include "app/machine.h"
#include "app/options.h"
#include "app/trace_file.h"
#include "app/ui/pretty_json.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/card.h"
#include "models/weight_list.h"

namespace hyb::app {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> prompts = {"512"};
  std::vector<std::string> generations = {"128"};
  std::vector<std::string> pairs;
  std::vector<std::string> depths = {"0"};
  std::vector<std::string> batches = {"1"};
  BenchOptions bench;
  std::string output = "md";
  std::string record;
};

std::vector<BenchCase> cases_of(const Options& options) {
  BenchGrid grid = {.prompts = parse_counts(options.prompts, "-p"),
                    .generations = parse_counts(options.generations, "-n"),
                    .depths = parse_counts(options.depths, "-d"),
                    .batches = parse_counts(options.batches, "-b"),
                    .pairs = {}};
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

/// "5f2c1e9" of "hyb 0.1.0 (5f2c1e9, CPU)".
std::string build_commit() {
  const std::string version = version_text();
  const std::size_t begin = version.find('(') + 1;
  return version.substr(begin, version.find_first_of(",)", begin) - begin);
}

/// What products run on: an instruction set of the CPU, or the kind of the card.
std::string instructions_of(const kernels::Queue& queue) {
  if (queue.device() == kernels::Device::cpu) return name_of(queue.isa());
  const kernels::Card card = kernels::card();
  return fmt::format("sm_{}{}", card.major, card.minor);
}

BenchSetting setting_of(const BareModel& model, const Options& options) {
  const bool is_bf16 = model.outline.activation == DType::bf16;
  const models::Plan& plan = model.model.plan;
  return {.build_commit = build_commit(),
          .cpu = cpu_name(),
          .device = options.model.device,
          .isa = instructions_of(model.queue),
          .model_filename =
              model.source.folder() ? model.source.folder()->string() : model.source.name(),
          .model_type = fmt::format("{} {}", plan.family, is_bf16 ? "BF16" : "F32"),
          .model_bytes = model.model.weights.packed_bytes,
          .parameters = models::parameters(models::required_weights(plan, *model.outline.family)),
          .threads = model.queue.threads(),
          .chunk_tokens = options.bench.chunk_tokens,
          .kv_dtype = model.model.geometry.kv_dtype == DType::bf16 ? "bf16" : "f32"};
}

/// Rows in the wished format. Lines go out as they are measured, a table and an array at the end.
class Output {
 public:
  Output(BenchSetting setting, std::string format)
      : setting_(std::move(setting)), format_(std::move(format)) {
    if (format_ == "csv") write_stdout(bench_csv_header() + '\n');
  }

  void add(Measurement row) {
    if (format_ == "csv") {
      write_stdout(bench_csv_line(setting_, row) + '\n');
    } else if (format_ == "jsonl") {
      write_stdout(to_text(bench_row(setting_, row)) + '\n');
    }
    rows_.push_back(std::move(row));
  }

  void finish() const {
    if (format_ == "md") write_stdout(markdown_text(bench_table(setting_, rows_)));
    if (format_ != "json") return;
    Json array = Json::array();
    for (const Measurement& row : rows_) array.push_back(bench_row(setting_, row));
    write_stdout(pretty_json(array));
  }

  bool has_measured() const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [](const Measurement& row) { return row.is_measured(); });
  }

 private:
  BenchSetting setting_;
  std::string format_;
  std::vector<Measurement> rows_;
};

BareModel open_model(const ModelOptions& options, const Environment& environment) {
  const StopAtOnce nothing_to_lose;
  return open_bare(options, environment);
}

int run(const Options& options) {
  const std::vector<BenchCase> cases = cases_of(options);
  const Environment environment = read_environment();
  ProgressLine progress(environment);
  progress.show("loading " + options.model.model);
  BareModel model = open_model(options.model, environment);
  BenchOptions bench_options = options.bench;
  bench_options.length_max = options.model.context;
  std::optional<TraceFile> trace;
  if (!options.record.empty()) {
    trace.emplace(options.record);
    bench_options.recorder = &trace->recorder();
  }
  Bench bench(model, bench_options);
  if (!bench.has_read_probe()) {
    progress.clear();
    log::warning(
        "no room for the 1 GiB of the read probe within --memory: shares of it are not shown");
  }
  Output output(setting_of(model, options), options.output);
  for (std::size_t i = 0; i < cases.size() && stop_signal() == 0; ++i) {
    progress.show(fmt::format("{} of {}: {}", i + 1, cases.size(), cases[i].name()));
    Measurement row = bench.run(cases[i]);
    progress.clear();
    output.add(std::move(row));
  }
  output.finish();
  return output.has_measured() ? 0 : static_cast<int>(ErrorKind::memory);
}

Action describe(CLI::App& cli) {
  const auto options = std::make_shared<Options>();  // CLI11 keeps pointers into it
  add_model_options(cli, options->model);
  const auto add_list = [&](const char* names, std::vector<std::string>& list, const char* about) {
    cli.add_option(names, list, about)->allow_extra_args(false)->capture_default_str();
  };
  add_list("-p,--n-prompt", options->prompts,
           "prompt lengths: 512 or 128,512 or 64-4096*2; 0: none");
  add_list("-n,--n-gen", options->generations, "tokens to generate, likewise");
  add_list("--pg", options->pairs, "PP,TG: a prompt and an answer in one test; -pg too");
  add_list("-d,--n-depth", options->depths, "tokens that stand in memory before each test");
  add_list("-b,--batch", options->batches, "sequences that generate at once");
  cli.add_option("-r,--repetitions", options->bench.repetitions, "how often each test is measured")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  cli.add_option("-u,--ubatch", options->bench.chunk_tokens, "prompt tokens of one step")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  cli.add_option("-o,--output", options->output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  cli.add_option("--record", options->record,
                 "write the sequences that were measured as a trace for hyb replay");
  return [options] { return run(*options); };
}

}  // namespace

const Command bench_command = {"bench", "Measure speed against what the machine can do", describe};

}  // namespace hyb::app
