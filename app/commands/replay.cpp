#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/base/texts.h"
#include "app/bench/bench_setting.h"
#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/machine/version.h"
#include "app/options/options.h"
#include "app/replay/replay.h"
#include "app/replay/report.h"
#include "app/replay/shape.h"
#include "app/replay/tree_policy.h"
#include "app/ui/process.h"
#include "app/ui/svg_plot.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "kernels/thread_pool.h"

namespace hyb::app {
namespace {

struct ReplayFlags {
  std::string trace;
  std::string shape;  ///< empty: of the model that the trace names
  ShapeOptions sizes;
  PolicyLists lists = {.policies = {"vllm", "sglang", "lru", "gd"},
                       .snapshots = {"exact"},
                       .budgets = {"2GB"},
                       .ratios = {0.9},
                       .block_tokens = 32,
                       .sglang_states = "turn-end"};
  bool is_depth_first = false;
  bool has_superblocks = false;
  std::string report;
  std::string plot;
  int threads = 0;
  bool json = false;
};

constexpr Words<bool, 2> replay_orders = {{{"file", false}, {"depth-first", true}}};
constexpr Words<bool, 3> replay_memory_modes = {
    {{"bytes", false}, {"flip", true}, {"remap", true}}};
constexpr std::array<const char*, 5> reports = {"reuse", "bytes", "efficiency", "bins",
                                                "quantiles"};

Analysis analysis_of(const std::string& name) {
  const auto found = std::find(reports.begin(), reports.end(), name);
  return static_cast<Analysis>(found - reports.begin());
}

/// Hit rate over budgets, a line per policy.
Plot plot_of(const ReplayFlags& options, const ReplayShape& shape,
             std::span<const ReplayRun> runs) {
  Plot plot = {.title = fmt::format("Prompt tokens reused: {}, {}", options.trace, shape.name),
               .x_title = "budget, GB",
               .y_title = "token hit rate, %",
               .is_x_logarithmic = true,
               .notes = {fmt::format("{}, {}", version_text(), utc_now())}};
  for (const ReplayRun& run : runs) {
    line_of(plot, label_of(run.options))
        .points.push_back(
            {static_cast<double>(run.options.budget_bytes) / 1e9, 100 * run.hit_rate()});
  }
  sort_points(plot);
  return plot;
}

std::string heading(const ReplayFlags& options, const ReplayShape& shape,
                    std::span<const ReplayRequest> trace) {
  std::int64_t tokens = 0;
  for (const ReplayRequest& request : trace) tokens += tokens_of(request.prompt);
  return fmt::format(
      "{}: {}, {}, order {}\n"
      "{}: {} of keys and values per token,{} {} of state per sequence, {} as int8\n\n",
      options.trace, counted(std::ssize(trace), "request"),
      tokens < 100'000 ? counted(tokens, "prompt token")
                       : fmt::format("{:.2f} M prompt tokens", static_cast<double>(tokens) / 1e6),
      word_of(replay_orders, options.is_depth_first), shape.name,
      bytes_text(static_cast<std::size_t>(shape.kv_bytes_per_token)),
      shape.windows.empty()
          ? ""
          : fmt::format(" {} per sequence in windows,",
                        bytes_text(static_cast<std::size_t>(shape.window_bytes()))),
      bytes_text(static_cast<std::size_t>(shape.state_bytes)),
      bytes_text(static_cast<std::size_t>(shape.state_bytes_int8)));
}

/// Pools that the policies of hyb serve from, which outlive them: one per budget and kind of
/// snapshot.
std::vector<models::ModelMemoryLayout> give_superblocks(std::vector<PolicyOptions>& policies,
                                                        const ReplayShape& shape) {
  std::vector<models::ModelMemoryLayout> pools;
  pools.reserve(policies.size());  // policies point into it
  for (PolicyOptions& policy : policies) {
    if (policy.kind != PolicyKind::lru && policy.kind != PolicyKind::gd) continue;
    pools.push_back(superblock_pools(shape, policy.budget_bytes, policy.snapshots));
    policy.layout = &pools.back().layout;
  }
  return pools;
}

/// Leaves out policies that do not know the windows of the shape, and says so.
void leave_out_unknown(const ReplayShape& shape, std::vector<PolicyOptions>& policies) {
  if (shape.windows.empty()) return;
  std::set<PolicyKind> unknown;
  std::erase_if(policies, [&](const PolicyOptions& policy) {
    if (!knows_windows(policy.kind)) unknown.insert(policy.kind);
    return unknown.contains(policy.kind);
  });
  for (const PolicyKind kind : unknown) {
    log::warning(fmt::format(
        "{}: what {} does with layers that have windows is not simulated; it is left out",
        shape.name, word_of(words::policy, kind)));
  }
  if (policies.empty()) {
    throw Error(ErrorKind::usage, fmt::format("--shape {}: no --policy is left; there are "
                                              "vllm, lru, gd, none and bound",
                                              shape.name));
  }
}

ReplayShape shape_of_model(const std::string& model, const ShapeOptions& sizes) {
  constexpr const char* usual = "nemotron-3-nano-30b-a3b";
  const Environment environment = read_environment();
  try {
    if (!model.empty()) return parse_shape(model, sizes, environment);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    log::warning(fmt::format("{}; the shape is {}", error.what(), usual));
  }
  return parse_shape(usual, sizes, environment);
}

int replay_main(const ReplayFlags& options) {
  const StopAtOnce at_once;  // nothing here is lost
  check_plot_name(options.plot);
  std::vector<PolicyOptions> policies = policy_options(options.lists);
  ReplayShape shape;
  if (!options.shape.empty()) shape = parse_shape(options.shape, options.sizes, read_environment());
  std::vector<ReplayRequest> trace = read_trace(options.trace);
  if (options.shape.empty()) shape = shape_of_model(trace.front().model, options.sizes);
  leave_out_unknown(shape, policies);
  std::vector<models::ModelMemoryLayout> pools;
  if (options.has_superblocks) pools = give_superblocks(policies, shape);
  if (options.is_depth_first) trace = in_depth_first_order(std::move(trace));

  const int threads = options.threads > 0 ? options.threads : kernels::usable_cpus().count;
  const std::vector<ReplayRun> runs = replay_all(trace, shape, policies, threads);
  if (!options.plot.empty()) {
    write_atomically(options.plot, svg_text(plot_of(options, shape, runs)), FileAccess::umask);
  }
  if (!options.report.empty()) {
    const Analysis analysis = analysis_of(options.report);
    write_output(options.json ? pretty_json(analysis_json(analysis, shape, runs))
                              : heading(options, shape, trace) +
                                    plain_text(analysis_table(analysis, shape, runs)));
    return 0;
  }
  write_output(options.json ? pretty_json(runs_json(runs))
                            : heading(options, shape, trace) + plain_text(runs_table(runs)));
  return 0;
}

void describe_policies(CLI::App& cli, PolicyLists& lists) {
  cli.add_option("--policy", lists.policies,
                 "policies to compare, with commas between them, or all")
      ->type_name("none|vllm+|sglang+|marconi|vllm|sglang|lru|gd|bound|all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  cli.add_option("--snapshots", lists.snapshots,
                 "how snapshots of recurrent states are kept: exact, int8 or both")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  cli.add_option("--budget", lists.budgets,
                 "memory for keys, values and snapshots, such as 2GB,6GB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  cli.add_option("--host-tier", lists.host_tier,
                 "for lru and gd: run once more with a tier of this size in the machine's memory");
  cli.add_option("--block", lists.block_tokens, "for vllm+: tokens per block")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  cli.add_option("--ratio", lists.ratios, "for sglang: bytes of states per byte of keys and values")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  cli.add_option("--sglang-states", lists.sglang_states,
                 "for sglang: where states are kept besides at branches: at the end of a turn, or "
                 "both there and at the end of a prompt")
      ->check(CLI::IsMember({"turn-end", "both"}))
      ->capture_default_str();
}

Action describe_replay(CLI::App& cli) {
  const auto options = std::make_shared<ReplayFlags>();  // CLI11 keeps pointers into it
  cli.add_option("trace", options->trace,
                 "JSONL, a request a line, as --record of chat, run, batch and bench writes it, or "
                 "scripts/measure/make_trace.py")
      ->type_name("FILE")
      ->required();
  describe_policies(cli, options->lists);
  cli.add_option("--shape", options->shape,
                 "the model's sizes: those of a preset, a folder or a config.json, or "
                 "marconi-7b[,ssm=N,attn=N,mlp=N,d=N,d_state=N]; default: of the model that a "
                 "recorded trace names, else nemotron-3-nano-30b-a3b")
      ->type_name("MODEL");
  static constexpr Words<DType, 3> kv_dtypes = {
      {{"bf16", DType::bf16}, {"f32", DType::f32}, {"fp8", DType::f8_e4m3}}};
  add_choice(cli, "--kv-dtype", options->sizes.kv_dtype, kv_dtypes, "type of keys and values");
  add_choice(cli, "--state-dtype", options->sizes.state_dtype, words::state_dtype,
             "type of recurrent states; auto: the model's, else f32");
  cli.add_option("--prefill-flops", options->sizes.flops_per_second,
                 "FLOPs per second of prefill, by which costs become seconds")
      ->check(CLI::Range(1e6, 1e18))
      ->capture_default_str();
  add_choice(cli, "--order", options->is_depth_first, replay_orders,
             "order of the requests: as in the file, or depth-first. In the latter, as in hyb "
             "batch, common prefixes run together, and lru and gd know what later prompts need");
  add_choice(cli, "--memory-mode", options->has_superblocks, replay_memory_modes,
             "how lru and gd hold memory. bytes counts to the byte and leaves out what the running "
             "request has, as for the others; flip and remap (the same here) use the engine's "
             "superblocks, the running request included");
  cli.add_option("--report", options->report, "print this instead of the table of policies")
      ->check(CLI::IsMember(std::vector<std::string>(reports.begin(), reports.end())));
  cli.add_option("--plot,--svg", options->plot, "write a plot (SVG) of hit rates over budgets")
      ->type_name("FILE");
  cli.add_option("--threads", options->threads, "policies that run at once; 0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  cli.add_flag("--json", options->json, "print a JSON array of rows");
  return [options] { return replay_main(*options); };
}

}  // namespace

const Command replay_command = {"replay", "Run the prefix cache over a request trace",
                                describe_replay};

}  // namespace hyb::app
