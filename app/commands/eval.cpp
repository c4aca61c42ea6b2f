#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/commands.h"
#include "app/eval/opened_model.h"
#include "app/eval/text_evaluation.h"
#include "app/machine/environment.h"
#include "app/options/options.h"
#include "app/request/text_input.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

constexpr std::size_t worst_windows = 3;

struct EvalFlags {
  ModelOptions model;
  std::vector<std::string> names;
  std::string against;
  std::int32_t windows_max = 0;
  Precision snapshots = Precision::exact;
  bool json = false;
};

/// The model that --against names, as it is published, within the memory that is left.
RunSettings reference_settings(const EvalFlags& options, const OpenedModel& model,
                               const RunSettings& settings, const Environment& environment) {
  ModelOptions wanted = options.model;
  wanted.model = options.against;
  wanted.types = {};
  wanted.types.random_weights = options.model.types.random_weights;
  RunSettings reference = resolve(wanted, environment);
  reference.set_memory(settings.memory.bytes - std::min(settings.memory.bytes, model.bytes()));
  return reference;
}

/// Probabilities of different tokens cannot be compared.
void check_same_tokens(const TextWindows& windows, const std::string& text,
                       const EvalFlags& options, const OpenedModel& model,
                       const OpenedModel& reference) {
  const Tokenizer& tokenizer = reference.tokenizer();
  const bool same_size = model.vocab() == reference.vocab();
  if (same_size &&
      windows.tokens == windows_of(tokenizer, text, model.window(), options.windows_max).tokens) {
    return;
  }
  throw Error(
      ErrorKind::usage,
      fmt::format("{} and {} have different vocabularies ({}): their probabilities cannot "
                  "be compared",
                  model.name(), reference.name(),
                  same_size ? "they cut the text differently"
                            : fmt::format("{} and {} tokens", model.vocab(), reference.vocab())));
}

/// The windows that are farthest from the reference, the farthest first.
std::vector<std::size_t> worst_of(const std::vector<double>& divergences) {
  std::vector<std::size_t> order(divergences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t i) { return divergences[i]; });
  order.resize(std::min(order.size(), worst_windows));
  return order;
}

std::string text_of(const Evaluation& found, const TextWindows& windows,
                    const OpenedModel* reference) {
  const auto perplexity = [](const Loss& loss) {
    return fmt::format("{:.4f} ± {:.4f}", loss.perplexity(), loss.perplexity_error());
  };
  Table table = {.columns = {{""}, {""}}};
  table.rows.push_back({"perplexity", perplexity(found.loss)});
  table.rows.push_back({"of", fmt::format("{} of {}, {} scored", counted(found.windows, "window"),
                                          counted(windows.length, "token"), found.loss.tokens)});
  if (reference != nullptr) {
    const DivergenceSummary& kl = found.divergence;
    table.rows.push_back({"against", reference->name()});
    table.rows.push_back({"its perplexity", perplexity(*found.reference_loss)});
    table.rows.push_back(
        {"KL divergence", fmt::format("mean {:.4g} ± {:.2g}, 99 % {:.4g}, largest {:.4g} nats",
                                      kl.mean, kl.mean_error, kl.p99, kl.largest)});
    table.rows.push_back(
        {"same top token",
         fmt::format("{:.2f} %", 100 * static_cast<double>(kl.rows - kl.likeliest_differs) /
                                     static_cast<double>(kl.rows))});
    std::string worst;
    for (const std::size_t i : worst_of(found.window_divergence)) {
      worst += fmt::format("{}{} (KL {:.3g})", worst.empty() ? "" : ", ", i + 1,
                           found.window_divergence[i]);
    }
    table.rows.push_back({"worst windows", worst});
  }
  return plain_text(table);
}

Json json_of(const Evaluation& found, const TextWindows& windows, const OpenedModel& model,
             const OpenedModel* reference, const EvalFlags& options) {
  const auto loss = [](const Loss& of) {
    return Json{{"perplexity", of.perplexity()},
                {"perplexity_error", of.perplexity_error()},
                {"mean_nll", of.mean()}};
  };
  Json json = {{"model", model.name()},
               {"windows", found.windows},
               {"window_tokens", windows.length},
               {"scored_tokens", found.loss.tokens},
               {"snapshots", word_of(words::snapshots, options.snapshots)}};
  json.update(loss(found.loss));
  if (reference == nullptr) return json;
  const DivergenceSummary& kl = found.divergence;
  Json worst = Json::array();
  for (const std::size_t i : worst_of(found.window_divergence)) {
    worst.push_back({{"window", i + 1}, {"kl_mean", found.window_divergence[i]}});
  }
  json["against"] = loss(*found.reference_loss);
  json["against"].update(
      {{"model", reference->name()},
       {"kl_mean", kl.mean},
       {"kl_mean_error", kl.mean_error},
       {"kl_p99", kl.p99},
       {"kl_max", kl.largest},
       {"top_token_agreement",
        static_cast<double>(kl.rows - kl.likeliest_differs) / static_cast<double>(kl.rows)},
       {"worst_windows", worst}});
  return json;
}

int eval_main(const CLI::App& cli, const EvalFlags& options) {
  if (options.names.empty()) {
    throw Error(ErrorKind::usage, "the text is missing: hyb eval [MODEL] FILE; - reads stdin");
  }
  ModelOptions wanted = options.model;
  const std::string& file = take_file_word(cli, options.names, wanted.model);
  const StopAtOnce nothing_to_lose;
  const Environment environment = read_environment();
  const std::string text = read_evaluated(file);
  // No token is longer than a text, so no window is longer than its bytes and a token before them.
  if (const auto context = static_cast<std::size_t>(options.model.context);
      context > text.size() + 1) {
    throw Error(ErrorKind::usage,
                fmt::format("the text has {}, fewer than a window has tokens ({}): give a longer "
                            "text or a smaller --context",
                            counted(std::ssize(text), "byte"), context));
  }
  const RunSettings settings = resolve(wanted, environment);
  OpenedModel model(settings, options.model.context, options.snapshots);
  if (options.snapshots == Precision::int8 && !model.has_states()) {
    throw Error(ErrorKind::usage,
                fmt::format("--snapshots int8: {} has no recurrent layers", model.name()));
  }
  const TextWindows windows =
      windows_of(model.tokenizer(), text, model.window(), options.windows_max);
  std::optional<OpenedModel> reference;
  if (!options.against.empty()) {
    reference.emplace(reference_settings(options, model, settings, environment), model.window(),
                      Precision::exact);
    check_same_tokens(windows, text, options, model, *reference);
  }
  ProgressLine progress(environment);
  std::optional<Reader> other;
  if (reference) other = reference->reader();
  const bool through_snapshot = options.snapshots == Precision::int8;
  const Evaluation found =
      evaluate(windows, model.reader(), other ? &*other : nullptr,
               {.through_snapshot = through_snapshot, .progress = [&](std::int32_t done) {
                  progress.show(ProgressCount{.done = done, .total = windows.count()});
                }});
  progress.clear();
  const OpenedModel* const shown = reference ? &*reference : nullptr;
  write_output(options.json ? pretty_json(json_of(found, windows, model, shown, options))
                            : text_of(found, windows, shown));
  return 0;
}

Action describe_eval(CLI::App& cli) {
  const auto options = std::make_shared<EvalFlags>();  // CLI11 keeps pointers into it
  options->model.context = 512;
  cli.add_option("files", options->names, "the model (default: demo) and the text (-: stdin)")
      ->type_name("FILE")
      ->option_text("[MODEL] FILE")
      ->expected(0, 2);
  add_model_flag(cli, options->model.model);
  add_model_options(cli, options->model, false);
  cli.get_option("--context")
      ->description(
          "tokens of a window, of which the second half is scored; 0: as many as the "
          "model has");
  add_graphs_option(cli, options->model.graphs);
  cli.add_option("--against", options->against,
                 "compare with this model, or with the same one as published: --quantize, "
                 "--kv-dtype and the other types are those of MODEL alone")
      ->type_name("MODEL");
  cli.add_option("--windows,--chunks", options->windows_max,
                 "score only the first windows of the text; 0: all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  add_choice(cli, "--snapshots", options->snapshots, words::snapshots,
             "int8: each window goes on from an int8 snapshot of its recurrent states, taken at "
             "its middle");
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options, &cli] { return eval_main(cli, *options); };
}

}  // namespace

const Command eval_command = {
    "eval", "Measure how well a model predicts a text, and what a format costs", describe_eval};

}  // namespace hyb::app
