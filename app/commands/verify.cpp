#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/base/texts.h"
#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/options/options.h"
#include "app/request/model_texts.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/model_outline.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "app/verify/passages.h"
#include "app/verify/promises.h"
#include "app/verify/snapshot_cost.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/card.h"

namespace hyb::app {
namespace {

constexpr int verification_failed = 6;
constexpr std::int32_t requests_length_max = 1 << 20;

struct VerifyFlags {
  ModelOptions model;
  PassageOptions passage_options = {.vocab = 0};
  std::string requests;
  Precision snapshots = Precision::exact;
  bool json = false;
};

/// Cost of int8 snapshots after this many of them in a row.
struct Cost {
  std::int32_t snapshots;
  DivergenceSummary summary;
};

/// Room for all passages at once, for copies of the longest, and for checkpoints.
models::RunnerOptions runner_options(const BareModel& model, const PassageOptions& passage_options,
                                     std::size_t passages) {
  const auto sequences = static_cast<std::int32_t>(std::max<std::size_t>(passages, 4)) + 1;
  const models::Geometry& geometry = model.model.geometry;
  const std::int32_t pages_each =
      (passage_options.length_max + geometry.page_tokens - 1) / geometry.page_tokens + 1;
  return {.memory = models::flat_memory(geometry, pages_each * sequences, 2 * sequences,
                                        kernels::handle_bytes_min(model.queue.device()),
                                        {.count = 2 * sequences, .tokens = drafts_max}),
          .step_tokens = 512,
          .sequences_max = sequences,
          .positions_max = passage_options.length_max,
          .vocab_used = passage_options.vocab,
          .graphs = model.settings.graphs,
          .step_samples = 2 * (1 + drafts_max) * sequences,
          .step_branches = sequences};
}

/// Pools with packed snapshots: room for two sequences and what they leave in memory, twice over,
/// because superblocks go to one view at a time.
models::RunnerOptions packed_options(const BareModel& model, const models::RunnerOptions& flat,
                                     models::ModelMemoryLayout& layout) {
  const models::Geometry& geometry = model.model.geometry;
  const auto pages = static_cast<std::size_t>(flat.positions_max / geometry.page_tokens + 2);
  const std::size_t sequence = pages * geometry.page_bytes + 2 * geometry.slot_bytes +
                               models::snapshot_layout(geometry).bytes;
  layout =
      models::memory_layout_of(geometry, {.pool_bytes = 8 * sequence, .packed = true, .flat = {}});
  models::RunnerOptions options = flat;
  options.memory = layout;
  options.mapping = {.mode = kernels::MapMode::remap};
  options.sequences_max = 32;
  return options;
}

void check_fits(const BareModel& model, const models::RunnerOptions& options) {
  const std::size_t bytes = model.model.weights.bytes() + 2 * model.runner_bytes(options);
  if (bytes <= model.settings.memory.bytes) return;
  throw Error(ErrorKind::memory,
              fmt::format("verify: needs {}, --memory allows {}; ask for fewer --prompts",
                          bytes_text(bytes), bytes_text(model.settings.memory.bytes)));
}

std::string line_of(const Verdict& verdict) {
  return verdict.is_kept()
             ? fmt::format("ok      {} ({})\n", verdict.promise, counted(verdict.rows, "row"))
             : fmt::format("FAILED  {}: {}\n", verdict.promise, verdict.fault);
}

std::string line_of(const Cost& cost) {
  const DivergenceSummary& sum = cost.summary;
  return fmt::format(
      "cost    {} int8 snapshot{}: KL mean {:.2g}, p99 {:.2g}, largest {:.2g} nats; "
      "another likeliest token in {} of {} rows\n",
      cost.snapshots, cost.snapshots == 1 ? "" : "s in a row", sum.mean, sum.p99, sum.largest,
      sum.likeliest_differs, sum.rows);
}

Json json_of(const Cost& cost) {
  const DivergenceSummary& sum = cost.summary;
  return {{"snapshots_in_a_row", cost.snapshots},
          {"rows", sum.rows},
          {"kl_mean", sum.mean},
          {"kl_p99", sum.p99},
          {"kl_max", sum.largest},
          {"likeliest_differs", sum.likeliest_differs}};
}

Json json_of(const BareModel& model, const std::vector<Verdict>& verdicts,
             const std::vector<Cost>& costs) {
  Json checks = Json::array();
  bool all_kept = true;
  for (const Verdict& verdict : verdicts) {
    checks.push_back({{"promise", verdict.promise},
                      {"ok", verdict.is_kept()},
                      {"rows", verdict.rows},
                      {"fault", verdict.fault}});
    all_kept = all_kept && verdict.is_kept();
  }
  Json json = {{"model", model.settings.source.name()},
               {"isa", name_of(model.queue.isa())},
               {"threads", model.queue.threads()},
               {"dtype", name_of(model.outline.geometry.load.activation)},
               {"ok", all_kept},
               {"checks", checks}};
  if (costs.empty()) return json;
  json["int8_snapshots"] = Json::array();
  for (const Cost& cost : costs) json["int8_snapshots"].push_back(json_of(cost));
  return json;
}

/// Checks everything there is to check.
void check_all(BareModel& model, const models::RunnerOptions& options, Promises& promises) {
  promises.run_alone();
  promises.check_together();
  promises.check_cuts();
  promises.check_copies();
  promises.check_resume();
  promises.check_engine();
  promises.check_speculation();
  if (model.queue.device() == kernels::Device::cuda) return;
  const int threads = model.queue.threads();
  for (const int others : {1, threads == 2 ? 3 : 2}) {
    if (others == threads) continue;
    kernels::Queue queue(model.queue.device(), {.threads = others, .isa = model.queue.isa()});
    models::ModelRunner runner(queue, model.model.plan, model.model.weights, model.model.geometry,
                               options);
    promises.check_runner(runner, fmt::format("threads {} = threads {}", others, threads));
  }
}

/// Checks the laws of int8 snapshots and measures their cost: of one, and of a chat whose every
/// turn continues from the one before.
std::vector<Cost> measure_packed(BareModel& model, const models::RunnerOptions& flat,
                                 std::span<const Passage> passages, std::uint64_t seed,
                                 Promises& promises) {
  models::ModelMemoryLayout layout;
  const models::RunnerOptions options = packed_options(model, flat, layout);
  check_fits(model, options);
  models::ModelRunner runner(model.queue, model.model.plan, model.model.weights,
                             model.model.geometry, options);
  promises.check_packed(runner);
  std::vector<Cost> costs;
  for (const std::int32_t snapshots : {1, 8}) {
    SnapshotCost cost(runner, seed);
    for (const Passage& passage : passages) cost.measure(passage, snapshots);
    costs.push_back({.snapshots = snapshots, .summary = cost.summary()});
  }
  return costs;
}

BareModel open_bare_model(const RunSettings& settings) {
  const StopAtOnce nothing_to_lose;
  return open_bare(settings);
}

/// Returns the wanted passages, within the model's limits. Those of requests keep their lengths.
PassageOptions passage_options_for(const BareModel& model, const VerifyFlags& options,
                                   const Tokenizer* tokenizer) {
  const models::Plan& plan = model.model.plan;
  PassageOptions passage_options = options.passage_options;
  if (!options.requests.empty()) passage_options.length_max = requests_length_max;
  passage_options.vocab =
      tokenizer == nullptr ? plan.vocab : std::min(plan.vocab, tokenizer->size());
  const auto limit = [&](std::int32_t most) {
    if (most > 0) passage_options.length_max = std::min(passage_options.length_max, most);
  };
  limit(options.model.context);
  if (plan.has_rope()) limit(plan.positions_max);
  if (passage_options.length_max <= passage_options.answer_tokens) {
    throw Error(ErrorKind::usage,
                fmt::format("-n: {} tokens leave no room for a prompt within {}",
                            passage_options.answer_tokens, passage_options.length_max));
  }
  return passage_options;
}

std::vector<Passage> passages_for(const VerifyFlags& options, PassageOptions& passage_options,
                                  const ModelTexts& texts) {
  if (options.requests.empty()) {
    return make_passages(passage_options, texts.tokenizer ? &*texts.tokenizer : nullptr);
  }
  std::vector<Passage> passages = read_passages(options.requests, passage_options, texts);
  std::size_t longest = 0;
  for (const Passage& passage : passages) longest = std::max(longest, passage.prompt.size());
  passage_options.length_max = static_cast<std::int32_t>(longest) + passage_options.answer_tokens;
  return passages;
}

int verify_main(const VerifyFlags& options) {
  const Environment environment = read_environment();
  ModelOptions wanted = options.model;
  if (!wanted.device) wanted.batch_invariant = true;  // what is to be verified
  if (wanted.device == kernels::Device::cuda && !wanted.batch_invariant) {
    throw Error(ErrorKind::usage,
                "verify: on a card answers are the same whatever else runs with --batch-invariant "
                "only; give it");
  }
  BareModel model = open_bare_model(resolve(wanted, environment));
  const ModelTexts texts = read_texts(model.settings.source);
  PassageOptions passage_options =
      passage_options_for(model, options, texts.tokenizer ? &*texts.tokenizer : nullptr);
  const std::vector<Passage> passages = passages_for(options, passage_options, texts);
  const models::RunnerOptions runner = runner_options(model, passage_options, passages.size());
  check_fits(model, runner);
  models::ModelRunner model_runner(model.queue, model.model.plan, model.model.weights,
                                   model.model.geometry, runner);
  ProgressLine progress(environment);
  progress.show("verifying");
  Promises promises(model_runner, passages, passage_options.seed, [&](const Verdict& verdict) {
    progress.clear();
    if (!options.json) write_output(line_of(verdict));
    progress.show("verifying");
  });
  check_all(model, runner, promises);
  std::vector<Cost> costs;
  if (options.snapshots == Precision::int8) {
    costs = measure_packed(model, runner, passages, passage_options.seed, promises);
  }
  progress.clear();
  if (options.json) {
    write_output(pretty_json(json_of(model, promises.verdicts(), costs)));
  } else {
    for (const Cost& cost : costs) write_output(line_of(cost));
  }
  const bool all_kept = std::all_of(promises.verdicts().begin(), promises.verdicts().end(),
                                    [](const Verdict& verdict) { return verdict.is_kept(); });
  return all_kept ? 0 : verification_failed;
}

Action describe_verify(CLI::App& cli) {
  const auto options = std::make_shared<VerifyFlags>();  // CLI11 keeps pointers into it
  add_model_options(cli, options->model);
  add_graphs_option(cli, options->model.graphs);
  cli.add_option("--requests", options->requests,
                 "use requests from this file, as hyb batch reads them, instead of random tokens")
      ->type_name("FILE");
  cli.add_option("--prompts", options->passage_options.prompts,
                 "number of prompts; of the file's requests, evenly spread ones")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  cli.add_option("-n,--max-tokens", options->passage_options.answer_tokens,
                 "tokens to generate after each prompt")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  cli.add_option("--length", options->passage_options.length_max,
                 "tokens of the longest prompt with its answer")
      ->check(CLI::Range(4, 1 << 20))
      ->capture_default_str();
  cli.add_option("--seed", options->passage_options.seed,
                 "seed of the random prompts, cuts and draws")
      ->capture_default_str();
  add_choice(cli, "--snapshots", options->snapshots, words::snapshots,
             "int8: measure how far int8 snapshots of recurrent states move answers, too");
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options] { return verify_main(*options); };
}

}  // namespace

const Command verify_command = {"verify", "Check that the same question gets the same answer",
                                describe_verify};

}  // namespace hyb::app
