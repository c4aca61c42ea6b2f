#include "app/bench/bench_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <variant>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "app/bench/simulated_policy.h"
#include "app/options/options.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

using O = BenchOptions;
using ListField = std::vector<std::string> O::*;
using FlagField = std::variant<ListField, std::string O::*, std::int32_t O::*, double O::*,
                               bool O::*, std::uint64_t O::*, std::optional<std::uint64_t> O::*>;

/// A set of measurements: tests of the model alone, and the datasets of requests.
using Uses = unsigned;
constexpr Uses use_of(Dataset dataset) { return 1U << static_cast<unsigned>(dataset); }

namespace use {
constexpr Uses kernels = 1U << 6;
constexpr Uses mix = 1U << 7;    ///< --preset pd-mix
constexpr Uses shift = 1U << 8;  ///< --preset elastic-shift
constexpr Uses random = use_of(Dataset::random);
constexpr Uses shared = use_of(Dataset::generated_shared_prefix);
constexpr Uses text = use_of(Dataset::send_one);
constexpr Uses corpus = use_of(Dataset::corpus);
constexpr Uses trace = use_of(Dataset::trace);
constexpr Uses files = corpus | use_of(Dataset::file) | trace;
constexpr Uses requests = random | shared | text | files;
constexpr Uses drawn = requests & ~trace;  ///< requests whose sizes and times are ours to say
constexpr Uses all = kernels | requests | mix | shift;
}  // namespace use

constexpr double tokens_max = 1 << 24;

/// Bounds of a number, or of each number in a list.
struct Bounds {
  double least, most;
  bool are_checked() const { return least < most; }
};

constexpr Bounds unchecked = {0, 0};
constexpr double batches_max = 1024;
constexpr const char* other_batch = "llama-bench's -b is -u here";

constexpr Bounds between(double least, double most) { return {least, most}; }

/// A flag of `hyb bench`: all that is said of it.
struct BenchFlag {
  const char* names;  ///< as CLI11 takes them; the first one names it in messages
  FlagField field;
  Uses uses;  ///< where it has a meaning
  Bounds bounds;
  const char* help;
};

constexpr std::array bench_flags = {
    BenchFlag{"-r,--repetitions", &O::repetitions, use::all, between(1, 10000),
              "how often each row is measured; default: 5, for requests 3"},
    BenchFlag{
        "-u,--ubatch,--ubatch-size", &O::chunk_tokens, use::all, between(1, chunk_tokens_limit),
        "most prompt tokens of one step; default: 512, on a card as suits its speed and memory"},
    BenchFlag{"-o,--output", &O::output, use::all, unchecked,
              "format of the rows; text fits the terminal, md has all columns"},
    BenchFlag{"--plot,--svg", &O::svg, use::kernels | use::requests, unchecked,
              "write a plot (SVG): rates over depth, latency over throughput. For a trace: hit "
              "rates over time; with several --lanes: tokens/s per device over tokens/s per user"},
    BenchFlag{"-p,--n-prompt", &O::prompt_lengths, use::kernels, unchecked,
              "prompt lengths: 512 or 128,512 or 64-4096*2; 0: none"},
    BenchFlag{"-n,--n-gen", &O::generation_lengths, use::kernels, unchecked,
              "tokens to generate, likewise"},
    BenchFlag{"--pg", &O::pairs, use::kernels, unchecked,
              "a prompt of PP tokens and an answer of TG in one test; also -pg"},
    BenchFlag{"-d,--n-depth", &O::depths, use::kernels, unchecked,
              "tokens in memory before each test"},
    BenchFlag{"-b,--batch", &O::batches, use::kernels, between(1, batches_max),
              "sequences at once; llama-bench's -b is -u here"},
    BenchFlag{"--dataset-name", &O::dataset, use::requests, unchecked,
              "measure requests on the engine"},
    BenchFlag{
        "--preset", &O::preset, use::requests | use::mix | use::shift, unchecked,
        "a known workload; other options override it. pd-sweep: 1 to 16 requests at once, with "
        "and without --disaggregate. pd-mix: long prompts arrive while answers go on, both "
        "ways in turns. elastic-shift: few long and many short sequences in turns, in "
        "elastic memory and in fixed ratios"},
    BenchFlag{"--dataset-path", &O::path, use::files, unchecked,
              "for corpus, a text; for file, requests as hyb batch reads them; for trace, a trace "
              "as hyb replay reads it"},
    BenchFlag{"--prompt", &O::text, use::text, unchecked, "the prompt of send_one"},
    BenchFlag{"--running-answers", &O::running_answers, use::mix, between(1, 4096),
              "for pd-mix: answers that go on while prompts arrive; default: 4"},
    BenchFlag{"--num-prompts,--gsp-prompts-per-group", &O::prompts, use::requests | use::mix,
              between(1, tokens_max),
              "requests, or those of each group; default: 10 per concurrent request, 100 with "
              "--request-rate"},
    BenchFlag{"--gsp-num-groups", &O::groups, use::shared, between(1, tokens_max),
              "groups of prompts that share a system prompt"},
    BenchFlag{"--random-prefix-len,--gsp-system-prompt-len", &O::system_tokens,
              use::shared | use::random, unchecked,
              "tokens of the prefix that all prompts, or a group, share"},
    BenchFlag{"--random-input-len,--gsp-question-len", &O::input_tokens,
              use::shared | use::random | use::corpus | use::mix, between(1, tokens_max),
              "tokens of a prompt"},
    BenchFlag{"--random-output-len,--gsp-output-len,--custom-output-len,--max-new-tokens",
              &O::output_tokens, use::drawn | use::mix, between(1, tokens_max),
              "tokens to generate"},
    BenchFlag{"--random-range-ratio", &O::range_ratio, use::random, between(0, 1),
              "lengths vary by up to this share of them"},
    BenchFlag{"--max-concurrency", &O::concurrencies, use::requests, between(1, 4096),
              "requests at once: 1,2,4 or 1-32*2"},
    BenchFlag{"--request-rate", &O::request_rates, use::drawn | use::mix, unchecked,
              "requests per second, whether the engine keeps up or not: 0.5,1,2 or inf"},
    BenchFlag{"--burstiness", &O::burstiness, use::requests, between(1e-3, 1e6),
              "shape of the gaps between arrivals; 1: a Poisson process"},
    BenchFlag{"--ignore-eos", &O::ignore_eos, use::requests, unchecked,
              "end answers at their length alone; always so with --random-weights"},
    BenchFlag{"--condition", &O::conditions, use::drawn, unchecked,
              "what of a prompt is cached when it comes: cold (nothing), warm (all but its last "
              "token; of shared prefixes, the system prompt) or turn-2 (the conversation so far)"},
    BenchFlag{"--policy", &O::policies, use::requests, unchecked,
              "how prefixes are reused: gd (hyb's own), lru or none. For a trace, also the "
              "policies of hyb replay, with the prefixes that they would reuse"},
    BenchFlag{
        "--spec-acceptance", &O::spec_acceptances, use::drawn, unchecked,
        "a row for each: drafts are right with this probability, 0 to 1, whatever --spec would "
        "guess; off: no drafts. What the model's own layer or a head guesses is replaced after it "
        "has taken its time; every repetition first runs without drafts, to know its answers"},
    BenchFlag{
        "--lanes", &O::lanes, use::requests, unchecked,
        "a row for each: colocated (prompts in chunks among answers) or disaggregated (prompts in "
        "a lane of their own, as with --disaggregate), with the same number of threads"},
    BenchFlag{"--turn-2-len", &O::question_tokens, use::requests, between(1, 1 << 20),
              "tokens of the second turn's question"},
    BenchFlag{"--num-warmups", &O::warm_up_requests, use::requests, between(0, 4096),
              "short requests before each row; 0: --max-concurrency"},
    BenchFlag{"--state-share", &O::state_shares, use::shift, unchecked,
              "for elastic-shift: fixed shares of memory for states; default: 0.1,0.2,...,0.9"},
    BenchFlag{"--scale-down", &O::scale_down, use::requests | use::shift, between(1, 65536),
              "divide all lengths by this; for elastic-shift, the long ones"},
    BenchFlag{"--trace-times", &O::trace_times, use::trace, unchecked,
              "let requests arrive when the trace says, not when there is room"},
    BenchFlag{"--in-turns", &O::interleaved, use::requests, unchecked,
              "run one repetition of every row, then the next of every row, so that drift of the "
              "machine shows in each row's spread; rows are printed at the end"},
    BenchFlag{"--seed", &O::seed, use::requests | use::mix | use::shift, unchecked,
              "seed of prompts and arrivals; every row and repetition has its own"},
    BenchFlag{"--scramble", &O::scramble, use::requests, unchecked,
              "scatter free pages and slots by this seed before measuring"},
    BenchFlag{"--metric-percentiles", &O::percentages, use::requests, unchecked,
              "percentiles of latencies that are shown"},
    BenchFlag{"--goodput", &O::goals, use::requests, unchecked,
              "bounds of a good answer: ttft:MS tpot:MS e2el:MS"},
};

/// Lists of words; the other lists are of counts, whose commas are their own.
constexpr std::array<ListField, 5> word_lists = {&O::conditions, &O::policies, &O::spec_acceptances,
                                                 &O::lanes, &O::state_shares};

std::string flag_name(const BenchFlag& flag) {
  const std::string_view names = flag.names;
  return std::string(names.substr(0, names.find(',')));
}

const BenchFlag& flag_of(const FlagField& field) {
  return *std::find_if(bench_flags.begin(), bench_flags.end(),
                       [&](const BenchFlag& flag) { return flag.field == field; });
}

CLI::Option* add_flag(CLI::App& cli, const BenchFlag& flag, O& options) {
  return std::visit(
      [&](auto field) -> CLI::Option* {
        auto& value = options.*field;
        using Value = std::remove_reference_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return cli.add_flag(flag.names, value, flag.help);
        } else {
          CLI::Option* const option = cli.add_option(flag.names, value, flag.help);
          if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            option->type_name("LIST");
            const bool has_words =
                std::find(word_lists.begin(), word_lists.end(), field) != word_lists.end();
            if (has_words) option->delimiter(',');
            if (field != &O::goals) option->allow_extra_args(false);
          } else if constexpr (std::is_same_v<Value, std::int32_t> ||
                               std::is_same_v<Value, double>) {
            if (flag.bounds.are_checked()) {
              option->check(CLI::Range(static_cast<Value>(flag.bounds.least),
                                       static_cast<Value>(flag.bounds.most)));
            }
          } else if constexpr (!std::is_same_v<Value, std::string>) {
            option->check(check_seed);
          }
          return option;
        }
      },
      flag.field);
}

/// The numbers of a list. Throws Error(usage) naming the flag.
std::vector<std::int32_t> counts_of(const O& options, ListField field) {
  const BenchFlag& flag = flag_of(field);
  const std::vector<std::int32_t> counts = parse_counts(options.*field, flag_name(flag));
  if (!flag.bounds.are_checked()) return counts;
  for (const std::int32_t count : counts) {
    if (count < flag.bounds.least || count > flag.bounds.most) {
      throw Error(ErrorKind::usage,
                  fmt::format("{}: {} is not from {} to {}{}{}", flag_name(flag), count,
                              flag.bounds.least, flag.bounds.most, field == &O::batches ? "; " : "",
                              field == &O::batches ? other_batch : ""));
    }
  }
  return counts;
}

/// Returns the measurements that these options ask for.
Uses measured_by(const BenchOptions& options) {
  if (!options.measures_requests()) return use::kernels;
  if (options.measures_shift()) return use::shift;
  return options.measures_mix() ? use::mix : use_of(parse_dataset(options.dataset));
}

}  // namespace

bool BenchOptions::names_second_lane() const {
  return std::find(lanes.begin(), lanes.end(), disaggregated_lanes) != lanes.end();
}

void add_bench_options(CLI::App& cli, BenchOptions& options) {
  for (const BenchFlag& flag : bench_flags) {
    CLI::Option* const option = add_flag(cli, flag, options);
    if (flag.uses == use::kernels) option->group("kernels")->capture_default_str();
    if ((flag.uses & use::kernels) == 0) option->group("requests");
  }
  cli.get_option("--output")->check([](const std::string& word) {
    return word.find('.') == std::string::npos
               ? ""
               : "is a format, and stdout gets the rows: hyb bench -o json > FILE";
  });
  cli.get_option("--output")
      ->check(CLI::IsMember({"text", "md", "json", "jsonl"}))
      ->capture_default_str();
  for (const char* const name : {"--dataset-path", "--plot"}) {
    cli.get_option(name)->type_name("FILE");
  }
  cli.get_option("--metric-percentiles")->capture_default_str();
  cli.get_option("--pg")->type_name("PP,TG");
  cli.get_option("--dataset-name")
      ->type_name("random|generated-shared-prefix|send_one|corpus|file|trace");
  cli.get_option("--policy")->type_name("gd|lru|none|vllm+|sglang+|marconi|vllm|sglang|bound");
  cli.get_option("--condition")->type_name("cold|warm|turn-2");
  cli.get_option("--lanes")->type_name("colocated|disaggregated");
  cli.get_option("--preset")
      ->type_name("vllm-hybrid|sglang-gsp|sglang-send-one|pd-sweep|pd-mix|elastic-shift");
}

void check_flags(const CLI::App& cli, const BenchOptions& options) {
  const bool has_requests = options.measures_requests();
  const Uses measured = measured_by(options);
  for (const BenchFlag& flag : bench_flags) {
    const std::string name = flag_name(flag);
    if ((flag.uses & measured) != 0 || cli.count(name) == 0) continue;
    std::string reason = options.dataset.empty()
                             ? "means nothing for --preset " + options.preset
                             : "means nothing for --dataset-name " + options.dataset;
    if (!has_requests) reason = "is for requests: name them with --dataset-name or --preset";
    if (flag.uses == use::kernels) {
      reason = "is for tests of kernels: leave --dataset-name and --preset out";
    }
    throw Error(ErrorKind::usage, name + ": " + reason);
  }
}

std::vector<BenchCase> kernel_cases(const BenchOptions& options) {
  BenchGrid grid = {.prompts = counts_of(options, &O::prompt_lengths),
                    .generations = counts_of(options, &O::generation_lengths),
                    .depths = counts_of(options, &O::depths),
                    .batches = counts_of(options, &O::batches),
                    .graphs = options.graphs};
  for (const std::string& pair : options.pairs) grid.pairs.push_back(parse_pair(pair, "-pg"));
  std::vector<BenchCase> cases = cases_of(grid);
  if (cases.empty()) {
    throw Error(ErrorKind::usage, "bench: nothing to measure; -p, -n or -pg name a test");
  }
  const auto generates = [](const BenchCase& test) { return test.generate > 0; };
  if (grid.batches != std::vector<std::int32_t>{1} &&
      std::none_of(cases.begin(), cases.end(), generates)) {
    throw Error(ErrorKind::usage, "-b: counts sequences that generate at once; -n or -pg is 0");
  }
  if (const auto most = std::ranges::max(grid.batches); most > 1) {
    log::info(fmt::format("-b {} counts sequences at once; {}", most, other_batch));
  }
  return cases;
}

namespace {

/// Defaults of a dataset: the values of vLLM and SGLang.
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
  bool compares_lanes = false;
};

constexpr std::array presets = {
    Preset{"vllm-hybrid", Dataset::random, 0, 0, 0, 32768, 128, "1,2,4,8,16,32", true},
    Preset{"sglang-gsp", Dataset::generated_shared_prefix, 50, 10, 10240, 256, 128, "5", true},
    Preset{"sglang-send-one", Dataset::send_one, 0, 1, 0, 0, 512, "1", true},
    Preset{"pd-sweep", Dataset::random, 0, 0, 0, 1024, 128, "1,2,4,8,16", true, true}};

void set_unless_given(std::vector<std::string>& list, std::int32_t value) {
  if (list.empty() && value > 0) list.push_back(std::to_string(value));
}

void check_fields(const BenchOptions& options, Dataset dataset) {
  for (const std::string& lanes : options.lanes) {
    if (lanes == colocated_lanes || lanes == disaggregated_lanes) continue;
    throw Error(ErrorKind::usage, fmt::format("--lanes: '{}' is none of {}, {}", lanes,
                                              colocated_lanes, disaggregated_lanes));
  }
  for (const std::string& policy : options.policies) {
    if (!is_simulated(policy)) continue;
    options.lab.check(policy);
    if (dataset == Dataset::trace) continue;
    throw Error(ErrorKind::usage,
                fmt::format("--policy {}: is for --dataset-name trace; for {} there are gd, lru "
                            "and none",
                            policy, name_of(dataset)));
  }
  if (dataset == Dataset::file && counts_of(options, &O::output_tokens).size() > 1) {
    throw Error(ErrorKind::usage,
                "--random-output-len: --dataset-name file takes one length, for the lines that "
                "name none");
  }
  if ((use_of(dataset) & use::files) != 0 && options.path.empty()) {
    throw Error(
        ErrorKind::usage,
        fmt::format("--dataset-path is missing: the file of --dataset-name {}", name_of(dataset)));
  }
}

RequestGrid grid_of(const BenchOptions& options) {
  RequestGrid grid = {.prompts = counts_of(options, &O::prompts),
                      .groups = counts_of(options, &O::groups),
                      .system_tokens = counts_of(options, &O::system_tokens),
                      .input_tokens = counts_of(options, &O::input_tokens),
                      .output_tokens = counts_of(options, &O::output_tokens),
                      .concurrencies = counts_of(options, &O::concurrencies),
                      .conditions = parse_conditions(options.conditions),
                      .graphs = options.graphs,
                      .policies = options.policies,
                      .spec_acceptances = options.spec_acceptances,
                      .lanes = options.lanes};
  if (!options.request_rates.empty()) grid.request_rates = parse_rates(options.request_rates);
  if (parse_dataset(options.dataset) == Dataset::trace && grid.policies.empty()) {
    grid.policies = {std::string(no_policy), std::string(words::eviction.front().word)};
  }
  return grid;
}

std::int32_t scaled(std::int32_t tokens, std::int32_t scale_down, std::int32_t least) {
  return std::max(tokens / scale_down, std::min(tokens, least));
}

/// Whatever does not follow from the command line follows from the row itself.
void complete(RequestCase& test, const BenchOptions& options) {
  static_cast<void>(test.right_drafts());  // refuses what is not a share
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

void apply_preset(BenchOptions& options) {
  if (options.preset.empty() || options.measures_mix() || options.measures_shift()) return;
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [&](const Preset& one) { return one.name == options.preset; });
  if (preset == presets.end()) {
    throw Error(
        ErrorKind::usage,
        fmt::format("--preset: '{}' is none of vllm-hybrid, sglang-gsp, sglang-send-one, pd-sweep, "
                    "pd-mix, elastic-shift",
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
  if (preset->compares_lanes && options.lanes.empty()) {
    options.lanes = {std::string(colocated_lanes), std::string(disaggregated_lanes)};
  }
}

LaneMix lane_mix(const BenchOptions& options) {
  LaneMix mix = {.answers = options.running_answers > 0 ? options.running_answers : 4,
                 .prompts = 4,
                 .prompt_tokens = 2048,
                 .answer_tokens = 16,
                 .rate = 0.1};
  const auto take = [&](ListField list, std::int32_t& value) {
    const std::vector<std::int32_t> counts = counts_of(options, list);
    if (counts.size() > 1) {
      throw Error(ErrorKind::usage, flag_name(flag_of(list)) + ": --preset pd-mix takes one value");
    }
    if (!counts.empty()) value = counts.front();
  };
  take(&O::prompts, mix.prompts);
  take(&O::input_tokens, mix.prompt_tokens);
  take(&O::output_tokens, mix.answer_tokens);
  if (options.request_rates.empty()) return mix;
  const std::vector<double> rates = parse_rates(options.request_rates);
  if (rates.size() > 1 || std::isinf(rates.front())) {
    throw Error(ErrorKind::usage, "--request-rate: --preset pd-mix takes one finite rate");
  }
  mix.rate = rates.front();
  return mix;
}

std::vector<RequestCase> request_cases(const BenchOptions& options) {
  const Dataset dataset = parse_dataset(options.dataset);
  check_fields(options, dataset);
  std::vector<RequestCase> cases = cases_of(usual_case(dataset), grid_of(options));
  for (RequestCase& test : cases) complete(test, options);
  return cases;
}

}  // namespace hyb::app
