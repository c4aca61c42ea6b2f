#include "app/bench/bench_options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "app/bench/cases.h"
#include "app/bench/simulated_policy.h"
#include "app/options.h"
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

namespace {

constexpr std::array dataset_flags = {"--num-prompts",
                                      "--gsp-num-groups",
                                      "--random-prefix-len",
                                      "--random-input-len",
                                      "--random-output-len",
                                      "--random-range-ratio",
                                      "--max-concurrency",
                                      "--request-rate",
                                      "--burstiness",
                                      "--ignore-eos",
                                      "--dataset-path",
                                      "--prompt",
                                      "--condition",
                                      "--policy",
                                      "--turn-2-len",
                                      "--num-warmups",
                                      "--scale-down",
                                      "--seed",
                                      "--metric-percentiles",
                                      "--goodput",
                                      "--trace-times",
                                      "--scramble",
                                      "--in-turns"};

/// What a dataset has where nobody says otherwise: vLLM's and SGLang's own values.
RequestCase usual_case(Dataset dataset) {
  RequestCase test;
  test.dataset = dataset;
  switch (dataset) {
    case Dataset::random:
    case Dataset::corpus:
      test.input_tokens = 1024;
      test.output_tokens = 128;
      break;
    case Dataset::generated_shared_prefix:
      test.groups = 64;
      test.prompts = 16;
      test.system_tokens = 2048;
      test.input_tokens = 128;
      test.output_tokens = 256;
      break;
    case Dataset::send_one:
      test.prompts = 1;
      test.output_tokens = 512;
      break;
    case Dataset::file:
      test.output_tokens = 256;
      break;
    case Dataset::trace:
      break;
  }
  return test;
}

struct Preset {
  std::string_view name;
  Dataset dataset;
  std::int32_t groups, prompts, system_tokens, input_tokens, output_tokens;
  const char* concurrencies;
  bool ignore_eos;
};

constexpr std::array presets = {
    Preset{"vllm-hybrid", Dataset::random, 0, 0, 0, 32768, 128, "1,2,4,8,16,32", true},
    Preset{"sglang-gsp", Dataset::generated_shared_prefix, 50, 10, 10240, 256, 128, "5", true},
    Preset{"sglang-send-one", Dataset::send_one, 0, 1, 0, 0, 512, "1", true}};

void set_unless_given(std::vector<std::string>& list, std::int32_t value) {
  if (list.empty() && value > 0) list.push_back(std::to_string(value));
}

void require_range(const std::vector<std::int32_t>& values, std::int32_t least, std::int32_t most,
                   const char* option) {
  for (const std::int32_t value : values) {
    if (value < least || value > most) {
      throw Error(ErrorKind::usage,
                  fmt::format("{}: {} is not from {} to {}", option, value, least, most));
    }
  }
}

/// What the dataset has no use for must not be asked of it.
void refuse(bool is_given, Dataset dataset, const char* option) {
  if (!is_given) return;
  throw Error(ErrorKind::usage,
              fmt::format("{}: means nothing for --dataset-name {}", option, name_of(dataset)));
}

void check_fields(const WorkloadOptions& options, Dataset dataset) {
  const bool is_shared = dataset == Dataset::generated_shared_prefix;
  const bool is_random = dataset == Dataset::random;
  const bool has_path =
      dataset == Dataset::corpus || dataset == Dataset::file || dataset == Dataset::trace;
  const bool is_trace = dataset == Dataset::trace;
  refuse(!options.groups.empty() && !is_shared, dataset, "--gsp-num-groups");
  refuse(!options.system_tokens.empty() && !is_shared && !is_random, dataset,
         "--random-prefix-len");
  refuse(!options.input_tokens.empty() && !is_shared && !is_random && dataset != Dataset::corpus,
         dataset, "--random-input-len");
  refuse(!options.output_tokens.empty() && is_trace, dataset, "--random-output-len");
  refuse(options.range_ratio > 0 && !is_random, dataset, "--random-range-ratio");
  refuse(!options.path.empty() && !has_path, dataset, "--dataset-path");
  refuse(!options.text.empty() && dataset != Dataset::send_one, dataset, "--prompt");
  refuse(!options.request_rates.empty() && is_trace, dataset, "--request-rate");
  refuse(options.trace_times && !is_trace, dataset, "--trace-times");
  for (const std::string& policy : options.policies) {
    refuse(is_simulated(policy) && !is_trace, dataset, "--policy other than gd, lru, none");
    if (is_simulated(policy)) check_simulated_policy(policy);
  }
  refuse(!options.conditions.empty() && is_trace, dataset, "--condition");
  if (dataset == Dataset::file &&
      parse_counts(options.output_tokens, "--random-output-len").size() > 1) {
    throw Error(ErrorKind::usage,
                "--random-output-len: --dataset-name file takes one length, for the lines that "
                "name none");
  }
  if (has_path && options.path.empty()) {
    throw Error(
        ErrorKind::usage,
        fmt::format("--dataset-path is missing: the file of --dataset-name {}", name_of(dataset)));
  }
}

RequestGrid grid_of(const WorkloadOptions& options) {
  RequestGrid grid = {.prompts = parse_counts(options.prompts, "--num-prompts"),
                      .groups = parse_counts(options.groups, "--gsp-num-groups"),
                      .system_tokens = parse_counts(options.system_tokens, "--random-prefix-len"),
                      .input_tokens = parse_counts(options.input_tokens, "--random-input-len"),
                      .output_tokens = parse_counts(options.output_tokens, "--random-output-len"),
                      .concurrencies = parse_counts(options.concurrencies, "--max-concurrency"),
                      .request_rates = {},
                      .conditions = parse_conditions(options.conditions),
                      .graphs = options.graphs,
                      .policies = options.policies};
  if (!options.request_rates.empty()) grid.request_rates = parse_rates(options.request_rates);
  constexpr std::int32_t most = 1 << 24;
  if (parse_dataset(options.dataset) == Dataset::trace && grid.policies.empty()) {
    grid.policies = {"none", "gd"};
  }
  require_range(grid.prompts, 1, most, "--num-prompts");
  require_range(grid.groups, 1, most, "--gsp-num-groups");
  require_range(grid.input_tokens, 1, most, "--random-input-len");
  require_range(grid.output_tokens, 1, most, "--random-output-len");
  require_range(grid.concurrencies, 1, 4096, "--max-concurrency");
  return grid;
}

std::int32_t scaled(std::int32_t tokens, std::int32_t scale_down, std::int32_t least) {
  return std::max(tokens / scale_down, std::min(tokens, least));
}

/// Whatever does not follow from the command line follows from the row itself.
void complete(RequestCase& test, const WorkloadOptions& options) {
  const bool is_open = !std::isinf(test.request_rate) || options.trace_times;
  if (test.concurrency == 0 && !is_open) test.concurrency = 1;
  if (test.prompts == 0 && test.dataset != Dataset::file && test.dataset != Dataset::trace) {
    test.prompts = is_open ? 100 : 10 * test.concurrency;
  }
  if (is_simulated(test.policy) && (test.concurrency != 1 || options.trace_times)) {
    throw Error(ErrorKind::usage,
                fmt::format("--policy {}: the policies of others are served one request after the "
                            "other; leave --max-concurrency and --trace-times out",
                            test.policy));
  }
  test.system_tokens = scaled(test.system_tokens, options.scale_down, 1);
  test.input_tokens = scaled(test.input_tokens, options.scale_down, 1);
  test.output_tokens = scaled(test.output_tokens, options.scale_down, 2);
}

}  // namespace

void apply_preset(WorkloadOptions& options) {
  if (options.preset.empty()) return;
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [&](const Preset& one) { return one.name == options.preset; });
  if (preset == presets.end()) {
    throw Error(ErrorKind::usage,
                fmt::format("--preset: '{}' is none of vllm-hybrid, sglang-gsp, sglang-send-one",
                            options.preset));
  }
  if (options.dataset.empty()) options.dataset = name_of(preset->dataset);
  if (parse_dataset(options.dataset) != preset->dataset) {
    throw Error(ErrorKind::usage, fmt::format("--preset {}: its dataset is {}", options.preset,
                                              name_of(preset->dataset)));
  }
  set_unless_given(options.groups, preset->groups);
  set_unless_given(options.prompts, preset->prompts);
  set_unless_given(options.system_tokens, preset->system_tokens);
  set_unless_given(options.input_tokens, preset->input_tokens);
  set_unless_given(options.output_tokens, preset->output_tokens);
  if (options.concurrencies.empty() && options.request_rates.empty()) {
    options.concurrencies.emplace_back(preset->concurrencies);
  }
  options.ignore_eos = options.ignore_eos || preset->ignore_eos;
}

std::vector<RequestCase> cases_of(const WorkloadOptions& options) {
  const Dataset dataset = parse_dataset(options.dataset);
  check_fields(options, dataset);
  std::vector<RequestCase> cases = cases_of(usual_case(dataset), grid_of(options));
  for (RequestCase& test : cases) complete(test, options);
  return cases;
}

std::string given_workload_flag(const CLI::App& cli) {
  for (const char* flag : dataset_flags) {
    if (cli.count(flag) > 0) return flag;
  }
  return "";
}

void add_workload_options(CLI::App& cli, WorkloadOptions& options) {
  const auto add_list = [&](const char* names, std::vector<std::string>& list, const char* about) {
    return cli.add_option(names, list, about)->allow_extra_args(false)->group("Requests");
  };
  const auto add = [&](const char* names, auto& value, const char* about) {
    return cli.add_option(names, value, about)->group("Requests");
  };
  add("--dataset-name", options.dataset,
      "measure requests on the engine: random, generated-shared-prefix, send_one, corpus, file, "
      "trace");
  add("--preset", options.preset,
      "a workload that is quoted: vllm-hybrid, sglang-gsp, sglang-send-one; other dataset_flags "
      "change it");
  add("--dataset-path", options.path,
      "corpus: a text; file: requests as hyb batch takes them; trace: as hyb replay");
  add("--prompt", options.text, "send_one: the prompt");
  add_list("--num-prompts,--gsp-prompts-per-group", options.prompts,
           "requests (of a group); else 10 for each at once, 100 in an open loop");
  add_list("--gsp-num-groups", options.groups, "groups of prompts that share a system prompt");
  add_list("--random-prefix-len,--gsp-system-prompt-len", options.system_tokens,
           "tokens that all prompts, or those of a group, begin with");
  add_list("--random-input-len,--gsp-question-len", options.input_tokens, "tokens of a prompt");
  add_list("--random-output-len,--gsp-output-len,--custom-output-len,--max-new-tokens",
           options.output_tokens, "tokens to generate");
  add("--random-range-ratio", options.range_ratio, "lengths vary by so much of them")
      ->check(CLI::Range(0.0, 1.0));
  add_list("--max-concurrency", options.concurrencies, "requests at once: 1,2,4 or 1-32*2");
  add("--request-rate", options.request_rates,
      "requests per second, which come whatever the engine does: 0.5,1,2 or inf");
  add("--burstiness", options.burstiness, "shape of the gaps between them; 1: a Poisson process")
      ->check(CLI::Range(1e-3, 1e6));
  cli.add_flag("--ignore-eos", options.ignore_eos,
               "answers end at their length alone; always so with --random-weights")
      ->group("Requests");
  add("--condition", options.conditions,
      "what is known of the prompts: cold, warm (all but the last token; of shared prefixes the "
      "system prompts), turn-2 (the conversation so far)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--policy", options.policies,
      "prefix reuse: gd (hyb's), lru, none; of a trace also those of hyb replay, prefixes as they "
      "would have them")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--turn-2-len", options.question_tokens, "tokens of the second turn's question")
      ->check(CLI::Range(1, 1 << 20));
  add("--num-warmups", options.warm_up_requests,
      "short requests before each row; 0: --max-concurrency")
      ->check(CLI::Range(0, 4096));
  add("--scale-down", options.scale_down, "divide all lengths by this")
      ->check(CLI::Range(1, 65536));
  cli.add_flag("--trace-times", options.trace_times,
               "trace: requests come when the trace says, not when there is room")
      ->group("Requests");
  cli.add_flag(
         "--in-turns", options.in_turns,
         "one repetition of every row, then the next of every row: what drifts in the machine "
         "shows in each row's spread; rows are printed at the end")
      ->group("Requests");
  add("--seed", options.seed, "of prompts and arrivals; every row and repetition has its own")
      ->check(no_minus);
  add("--scramble", options.scramble, "scatter free pages and slots by this seed before measuring")
      ->check(no_minus);
  add("--metric-percentiles", options.percentages, "of latencies")->capture_default_str();
  add("--goodput", options.goals, "ttft:MS tpot:MS e2el:MS: what a good answer keeps to");
}

}  // namespace hyb::app
