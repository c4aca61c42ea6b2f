#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/commands/commands.h"
#include "app/environment.h"
#include "app/machine.h"
#include "app/model_outline.h"
#include "app/options.h"
#include "app/ui/pretty_json.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/sanitizer.h"
#include "app/verify/passages.h"
#include "app/verify/promises.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr int verification_failed = 6;

struct Options {
  ModelOptions model;
  PassageWishes wishes = {.vocab = 0};
  bool json = false;
};

/// The tokenizer of a model that has one.
std::optional<Tokenizer> read_tokenizer(const ModelSource& source) {
  const auto text = source.read("tokenizer.json");
  if (!text) return std::nullopt;
  return Tokenizer::from_json(*text, source.path_of("tokenizer.json"));
}

/// Room for all passages at once, for copies of the longest, and for checkpoints.
models::RunnerOptions runner_options(const BareModel& model, const PassageWishes& wishes,
                                     std::size_t passages) {
  const auto sequences = static_cast<std::int32_t>(std::max<std::size_t>(passages, 4)) + 1;
  const models::Geometry& geometry = model.model.geometry;
  const std::int32_t pages_each =
      (wishes.length_max + geometry.page_tokens - 1) / geometry.page_tokens + 1;
  return {.memory = models::flat_memory(geometry, pages_each * sequences, 2 * sequences),
          .step_tokens = 512,
          .step_rows = sequences,
          .positions_max = wishes.length_max,
          .vocab_used = wishes.vocab};
}

void check_fits(const BareModel& model, const models::RunnerOptions& options) {
  const std::size_t bytes = model.model.weights.packed_bytes + 2 * model.runner_bytes(options);
  if (bytes <= model.budget) return;
  throw Error(ErrorKind::memory,
              fmt::format("verify: needs {}, --memory allows {}; ask for fewer --prompts",
                          bytes_text(bytes), bytes_text(model.budget)));
}

std::string line_of(const Verdict& verdict) {
  return verdict.is_kept() ? fmt::format("ok      {} ({} rows)\n", verdict.promise, verdict.rows)
                           : fmt::format("FAILED  {}: {}\n", verdict.promise, verdict.fault);
}

Json json_of(const BareModel& model, const std::vector<Verdict>& verdicts) {
  Json checks = Json::array();
  bool all_kept = true;
  for (const Verdict& verdict : verdicts) {
    checks.push_back({{"promise", verdict.promise},
                      {"ok", verdict.is_kept()},
                      {"rows", verdict.rows},
                      {"fault", verdict.fault}});
    all_kept = all_kept && verdict.is_kept();
  }
  return {{"model", model.source.name()},
          {"isa", name_of(model.queue.isa())},
          {"threads", model.queue.threads()},
          {"dtype", name_of(model.outline.activation)},
          {"ok", all_kept},
          {"checks", checks}};
}

/// Checks everything there is to check.
void check_all(BareModel& model, const models::RunnerOptions& options, Promises& promises) {
  promises.run_alone();
  promises.check_together();
  promises.check_cuts();
  promises.check_copies();
  promises.check_resume();
  promises.check_engine();
  const int threads = model.queue.threads();
  for (const int others : {1, threads == 2 ? 3 : 2}) {
    if (others == threads) continue;
    kernels::Queue queue(model.queue.device(), {.threads = others, .isa = model.queue.isa()});
    models::ModelRunner runner(queue, model.model.plan, model.model.weights, model.model.geometry,
                               options);
    promises.check_runner(runner, fmt::format("threads {} = threads {}", others, threads));
  }
}

BareModel open_model(const ModelOptions& options, const Environment& environment) {
  const StopAtOnce nothing_to_lose;
  return open_bare(options, environment);
}

/// What the options ask for, within what the model can take.
PassageWishes wishes_for(const BareModel& model, const Options& options,
                         const Tokenizer* tokenizer) {
  const models::Plan& plan = model.model.plan;
  PassageWishes wishes = options.wishes;
  wishes.vocab = tokenizer == nullptr ? plan.vocab : std::min(plan.vocab, tokenizer->size());
  const auto limit = [&](std::int32_t most) {
    if (most > 0) wishes.length_max = std::min(wishes.length_max, most);
  };
  limit(options.model.context);
  if (plan.has_rope) limit(plan.positions_max);
  if (wishes.length_max <= wishes.answer_tokens) {
    throw Error(ErrorKind::usage, fmt::format("-n: {} tokens leave no room for a prompt within {}",
                                              wishes.answer_tokens, wishes.length_max));
  }
  return wishes;
}

int run(const Options& options) {
  const Environment environment = read_environment();
  BareModel model = open_model(options.model, environment);
  const std::optional<Tokenizer> tokenizer = read_tokenizer(model.source);
  const Tokenizer* known = tokenizer ? &*tokenizer : nullptr;
  const PassageWishes wishes = wishes_for(model, options, known);
  std::vector<Passage> passages = make_passages(wishes, known);
  const models::RunnerOptions runner = runner_options(model, wishes, passages.size());
  check_fits(model, runner);
  models::ModelRunner model_runner(model.queue, model.model.plan, model.model.weights,
                                   model.model.geometry, runner);
  ProgressLine progress(environment);
  progress.show("verifying");
  Promises promises(model_runner, std::move(passages), wishes.seed, [&](const Verdict& verdict) {
    progress.clear();
    if (!options.json) write_stdout(line_of(verdict));
    progress.show("verifying");
  });
  check_all(model, runner, promises);
  progress.clear();
  if (options.json) write_stdout(pretty_json(json_of(model, promises.verdicts())));
  const bool all_kept = std::all_of(promises.verdicts().begin(), promises.verdicts().end(),
                                    [](const Verdict& verdict) { return verdict.is_kept(); });
  return all_kept ? 0 : verification_failed;
}

Action describe(CLI::App& cli) {
  const auto options = std::make_shared<Options>();  // CLI11 keeps pointers into it
  add_model_options(cli, options->model);
  cli.add_option("--prompts", options->wishes.random_prompts, "prompts of random tokens")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  cli.add_option("-n,--max-tokens", options->wishes.answer_tokens, "tokens drawn behind each")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  cli.add_option("--length", options->wishes.length_max, "of the longest prompt with its answer")
      ->check(CLI::Range(4, 1 << 20))
      ->capture_default_str();
  cli.add_option("--seed", options->wishes.seed, "of prompts, cuts and draws")
      ->capture_default_str();
  cli.add_flag("--json", options->json, "one JSON object");
  return [options] { return run(*options); };
}

}  // namespace

const Command verify_command = {"verify", "Check that the same question gets the same answer",
                                describe};

}  // namespace hyb::app
