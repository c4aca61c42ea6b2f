#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/base/texts.h"
#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/options/options.h"
#include "app/runtime/fit.h"
#include "app/runtime/memory_plan.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/probe.h"
#include "kernels/thread_pool.h"
#include "models/roofline.h"

namespace hyb::app {
namespace {

struct FitFlags {
  ModelOptions model;
  std::int32_t parallel = 1;
  bool json = false, verbose = false;
};

constexpr std::array<std::int32_t, 4> context_lengths = {1024, 4096, 32768, 131072};

std::string count_text(const Fit& fit, std::int32_t length) {
  const std::int32_t count = fit.sequences_of(length);
  return count == Fit::sequences_max ? fmt::format("{} or more", count) : std::to_string(count);
}

std::string length_text(std::int32_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : std::to_string(length);
}

/// The bytes of weights none of which take 12 bits.
std::size_t plain_weight_bytes(const ModelOutline& outline) {
  models::LoadOptions load = outline.geometry.load;
  load.lossless = false;
  load.above_12_bits = 0;
  return weight_bytes(outline.plan, kernels::Device::cpu, load);
}

/// Sequences that must fit, each of this number of tokens.
struct Wanted {
  std::int32_t tokens, sequences;

  bool fits(const MemoryPlan& memory) const {
    return memory.length_max >= tokens && memory.sequences >= sequences;
  }
};

Wanted wanted_of(const FitFlags& options, const models::Plan& plan) {
  constexpr std::int32_t usual = 4096;
  return {.tokens = options.model.context > 0 ? options.model.context
                    : plan.positions_max > 0  ? std::min(usual, plan.positions_max)
                                              : usual,
          .sequences = options.parallel};
}

/// A way to hold the weights, and what fits with it.
struct Choice {
  std::string quantize, weights;
  std::size_t weight_bytes = 0;
  /// The --memory that is needed for it; MiBs less may do, as pools are divided.
  std::size_t needs = 0;
  bool fits = false;            ///< within --memory
  std::int32_t length_max = 0;  ///< of one sequence; 0: none fits
  double token_bytes = 0;       ///< read for a token of one answer
};

std::optional<MemoryPlan> planned(const Fit& fit, std::int32_t tokens, std::int32_t sequences) {
  try {
    return fit.plan(tokens, sequences);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    return std::nullopt;
  }
}

/// The plan of the context that is given; where none is, and what is wanted does not fit beside
/// sequences as long as the model's, that of the tokens that are wanted.
std::optional<MemoryPlan> planned_for(const Fit& fit, std::int32_t context, const Wanted& wanted) {
  auto usual = planned(fit, context, wanted.sequences);
  if (usual && wanted.fits(*usual)) return usual;
  auto shorter = planned(fit, wanted.tokens, wanted.sequences);
  if (shorter && wanted.fits(*shorter)) return shorter;
  return usual;
}

/// Returns the most tokens of a single sequence; 0: none fits.
std::int32_t longest_of(const Fit& fit, std::int32_t context, const Wanted& wanted) {
  const auto single = planned_for(fit, context, {wanted.tokens, 1});
  return single ? single->length_max : 0;
}

std::size_t least_memory(const ModelOutline& outline, Budget budget, int threads,
                         std::int32_t chunk_tokens, const Wanted& wanted) {
  constexpr std::size_t step = std::size_t{1} << 20, most = std::size_t{1} << 44;
  budget.pool_bytes = Budget::unlimited;
  const auto holds = [&](std::size_t bytes) {
    budget.bytes = bytes;
    const auto memory =
        planned(Fit(outline, budget, threads, chunk_tokens), wanted.tokens, wanted.sequences);
    return memory && wanted.fits(*memory);
  };
  std::size_t good = step;
  while (good < most && !holds(good)) good *= 2;
  for (std::size_t bad = good / 2; good - bad > step;) {
    const std::size_t middle = (bad + (good - bad) / 2) / step * step;
    (holds(middle) ? good : bad) = middle;
  }
  return good;
}

constexpr std::int64_t predicted_position = 1024;

Choice choice_of(std::string quantize, const ModelOutline& outline, const Budget& budget,
                 int threads, const FitFlags& options) {
  const std::int32_t chunk = options.model.chunk_tokens;
  const Wanted wanted = wanted_of(options, outline.plan);
  const Fit fit(outline, budget, threads, chunk);
  const auto asked = planned_for(fit, options.model.context, wanted);
  return {.quantize = std::move(quantize),
          .weights = weights_name(outline.geometry.load),
          .weight_bytes = weight_bytes(outline.plan, budget.device, outline.geometry.load),
          .needs = least_memory(outline, budget, threads, chunk, wanted),
          .fits = asked && wanted.fits(*asked),
          .length_max = longest_of(fit, options.model.context, wanted),
          .token_bytes = models::Roofline(outline.plan, outline.geometry)
                             .step({.position = predicted_position})
                             .bytes};
}

/// The command's own way of holding the weights, and the others that the model has and that make
/// them smaller: what a file has in few bits stays as it is.
std::vector<Choice> choices_of(const RunSettings& settings, const ModelOutline& outline,
                               const Budget& budget, int threads, const FitFlags& options) {
  std::vector<Choice> choices;
  for (const auto& [word, quantize] : words::quantize) {
    const bool is_own = quantize == settings.types.quantize;
    const bool is_usual = quantize == QuantizeChoice::none || quantize == QuantizeChoice::q8 ||
                          quantize == QuantizeChoice::q4;
    if (!is_own && !is_usual) continue;
    if (is_own) {
      choices.push_back(choice_of(std::string(word), outline, budget, threads, options));
      continue;
    }
    RunSettings other = settings;
    other.types.quantize = quantize;
    other.types.lossless = {};
    try {
      ModelOutline its = outline_of(other, {.sequences = options.parallel});
      sample_lossless(other, its);
      const bool is_smaller =
          choices.empty() ||
          weight_bytes(its.plan, budget.device, its.geometry.load) < choices.front().weight_bytes;
      if (!is_smaller) continue;
      choices.push_back(choice_of(std::string(word), its, budget, threads, options));
    } catch (const Error& error) {  // of types that do not go together there is nothing to say
      if (error.kind() == ErrorKind::runtime) throw;
    }
  }
  return choices;
}

/// Bytes that the device reads in a second; 0: not known, or what a token reads is so little that
/// other things take the time.
double read_rate(const RunSettings& settings, const Budget& budget,
                 const std::vector<Choice>& choices) {
  constexpr double token_bytes_min = 64e6;
  constexpr std::size_t probed_min = std::size_t{32} << 20, probed_max = 4 * probed_min;
  if (choices.empty() || choices.front().token_bytes < token_bytes_min) return 0;
  if (budget.rates.bytes_per_s > 0) return budget.rates.bytes_per_s;
  const std::size_t probed_bytes = std::min(probed_max, budget.bytes);
  if (probed_bytes < probed_min) return 0;
  try {
    kernels::Queue queue = make_queue(settings);
    kernels::ReadProbe probe(queue, probed_bytes);
    double best = 0;
    for (int pass = 0; pass < 4; ++pass) best = std::max(best, probe.bytes_per_s());
    return best;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    return 0;
  }
}

std::string choices_text(const std::vector<Choice>& choices, const Wanted& wanted,
                         std::string_view own, double bytes_per_s) {
  Table table = {.columns = columns_of("--quantize|>weights|>needs|fits|>longest")};
  if (bytes_per_s > 0) table.columns.push_back({"predicted t/s", Align::right});
  table.columns.push_back({"weights are"});
  for (const Choice& one : choices) {
    table.rows.push_back({one.quantize + (one.quantize == own ? " *" : ""),
                          bytes_text(one.weight_bytes), bytes_text(one.needs),
                          one.fits ? "yes" : "no",
                          one.length_max > 0 ? std::to_string(one.length_max) : "none"});
    if (bytes_per_s > 0) {
      table.rows.back().push_back(fmt::format("{:.1f}", bytes_per_s / one.token_bytes));
    }
    table.rows.back().push_back(one.weights);
  }
  std::string text =
      plain_text(table) +
      fmt::format("needs: --memory for {} of {}; longest: tokens of one; *: as given\n",
                  counted(wanted.sequences, "sequence"), counted(wanted.tokens, "token"));
  if (bytes_per_s > 0) {
    text += fmt::format("predicted: what reading {:.1f} GB/s allows one answer after {} tokens\n",
                        bytes_per_s / 1e9, predicted_position);
  }
  return text;
}

/// The lines that count: whether what is wanted fits, and if not what does.
std::string verdict_text(const Fit& fit, const MemoryPlan& memory, const Wanted& wanted,
                         std::int32_t context) {
  const auto sequences = [](std::int32_t count, std::int32_t tokens) {
    return fmt::format("{} of {} tokens{}", counted(count, "sequence"), tokens,
                       count > 1 ? " each" : "");
  };
  std::string text;
  if (wanted.fits(memory)) {
    const auto usual = planned(fit, context, wanted.sequences);
    text = usual && wanted.fits(*usual) ? "fits: "
                                        : fmt::format("fits with --context {}: ", wanted.tokens);
    text += sequences(wanted.sequences, memory.length_max);
  } else {
    text = "does not fit: " + sequences(wanted.sequences, wanted.tokens);
    std::vector<std::string> others;
    if (const std::int32_t count = fit.sequences_of(wanted.tokens); count > 0) {
      others.push_back(std::to_string(count));
    }
    std::int32_t good = 0;
    for (std::int32_t bad = wanted.tokens; wanted.sequences > 1 && bad - good > 1;) {
      const std::int32_t middle = good + (bad - good) / 2;
      const auto other = planned(fit, middle, wanted.sequences);
      (other && Wanted{middle, wanted.sequences}.fits(*other) ? good : bad) = middle;
    }
    if (good > 0) others.push_back(sequences(wanted.sequences, good));
    if (!others.empty()) text += fmt::format("; what fits: {}", fmt::join(others, ", or "));
  }
  text += '\n';
  return text + "longest single sequence: " + counted(longest_of(fit, context, wanted), "token") +
         "\n";
}

void add_pools(Table& parts, const models::Geometry& geometry, const MemoryPlan& memory) {
  const MemoryLayout& layout = memory.pools.layout;
  parts.rows.push_back(
      {"", "",
       fmt::format("{} of {}, each of which is", counted(layout.superblocks, "superblock"),
                   bytes_text(layout.superblock_bytes))});
  for (const PageGroup& group : layout.groups) {
    parts.rows.push_back(
        {fmt::format("  {}", group.kind->name()), "",
         fmt::format("{} of {} tokens, {} each", counted(group.pages_per_superblock, "page"),
                     layout.page_tokens, bytes_text(group.page_bytes))});
  }
  if (layout.slots.per_superblock > 0) {
    parts.rows.push_back({"  slots", "",
                          fmt::format("{} of {}", counted(layout.slots.per_superblock, "state"),
                                      bytes_text(geometry.slot_bytes))});
  }
  if (layout.rings.per_superblock > 0) {
    parts.rows.push_back({"  rings", "",
                          fmt::format("{} of {}, of sequences with drafts",
                                      counted(layout.rings.per_superblock, "ring"),
                                      bytes_text(layout.content_bytes(layout.ring_view())))});
  }
}

/// Describes how the budget is divided; with `details`, also how the engine divides the pools.
std::string parts_text(const ModelOutline& outline, const MemoryPlan& memory,
                       const FitFlags& options) {
  const models::Geometry& geometry = outline.geometry;
  Table parts = {.columns = columns_of("part|>bytes|what")};
  const auto add = [&](const char* part, std::size_t bytes, const std::string& what) {
    parts.rows.push_back({part, bytes_text(bytes), what});
  };
  std::string weights = weights_name(geometry.load);
  if (geometry.load.lossless) {
    if (!weights.starts_with("BF16")) weights += ", the BF16 ones in 12 bits";
    weights += geometry.load.above_12_bits > 0
                   ? ", by samples of the files"
                   : fmt::format(" where that pays; {} if it never does",
                                 bytes_text(plain_weight_bytes(outline)));
  }
  if (outline.plan.draft) weights += "; with the layer that drafts (--spec)";
  add("weights", memory.weights, weights);
  add("workspace", memory.workspace,
      fmt::format(
          "activations and tables of {}; chunks of {}",
          options.model.lanes.is_on && memory.cards == 1 ? "a step in each lane" : "one step",
          chunk_text(memory)));
  if (memory.library > 0) add("cuBLASLt", memory.library, "what it computes in");
  if (memory.process > 0) add("process", memory.process, "code, tokenizer, tables");
  add("pools", memory.pool_bytes(), "keys, values and states of sequences");
  if (options.verbose) add_pools(parts, geometry, memory);
  add("total", memory.total(),
      fmt::format("of {} allowed{}", bytes_text(memory.budget),
                  memory.cards > 1 ? fmt::format(", on each of {} cards", memory.cards) : ""));
  if (memory.pinned > 0) {
    add("pinned", memory.pinned,
        "of the machine's memory besides: tables on their way to the card");
  }
  return plain_text(parts);
}

void print_text(const ModelSource& source, const ModelOutline& outline, const Fit& fit,
                const std::optional<MemoryPlan>& memory, std::size_t budget_bytes,
                const std::vector<Choice>& choices, double bytes_per_s, const FitFlags& options) {
  const std::string missing = missing_files_text(source, outline);
  const Wanted wanted = wanted_of(options, outline.plan);
  const models::Geometry& geometry = outline.geometry;
  std::string text = sanitized_line(source.name()) + '\n' +
                     (missing.empty() ? "" : "not complete: " + missing + '\n');
  text += memory ? verdict_text(fit, *memory, wanted, options.model.context)
                 : fmt::format("does not fit in {}\n", bytes_text(budget_bytes));
  const std::string_view own = word_of(words::quantize, options.model.types.quantize);
  text += '\n' + choices_text(choices, wanted, own, bytes_per_s);
  if (memory) {
    Table table = {.columns = columns_of(">tokens each|>sequences at once")};
    const std::int32_t longest = longest_of(fit, options.model.context, wanted);
    for (const std::int32_t length : context_lengths) {
      if (length > longest) continue;
      table.rows.push_back({length_text(length), count_text(fit, length)});
    }
    text +=
        '\n' + parts_text(outline, *memory, options) +
        fmt::format("keys and values {}, {}; state {}, {} per sequence\n",
                    name_of(geometry.kv_dtype), kv_text(geometry), name_of(geometry.state_dtype),
                    bytes_text(geometry.state_bytes_per_sequence));
    if (!table.rows.empty()) text += '\n' + plain_text(table);
  }
  write_output(wrapped(text, text_columns(read_environment())));
}

/// Returns what a superblock holds in each of its views.
Json views_json(const MemoryPlan& memory) {
  const MemoryLayout& layout = memory.pools.layout;
  Json views = Json::array();
  for (std::int32_t v = 0; v < layout.views(); ++v) {
    const ViewId view{v};
    if (layout.units_per_superblock(view) == 0) continue;
    const std::string name =
        view == layout.slot_view()     ? "slots"
        : view == layout.packed_view() ? "packed"
        : view == layout.ring_view()
            ? "rings"
            : std::string(layout.groups[static_cast<std::size_t>(v)].kind->name());
    views.push_back({{"view", name},
                     {"units_per_superblock", layout.units_per_superblock(view)},
                     {"unit_bytes", layout.unit_bytes(view)}});
  }
  return views;
}

Json choices_json(const std::vector<Choice>& choices, double bytes_per_s) {
  Json all = Json::array();
  for (const Choice& one : choices) {
    all.push_back({{"quantize", one.quantize},
                   {"weights", one.weights},
                   {"weights_bytes", one.weight_bytes},
                   {"needs_bytes", one.needs},
                   {"fits", one.fits},
                   {"single_length_max", one.length_max},
                   {"predicted_tokens_per_s",
                    bytes_per_s > 0 ? Json(bytes_per_s / one.token_bytes) : Json()}});
  }
  return all;
}

/// Describes a plan that there is.
void add_plan(Json& json, const ModelOutline& outline, const Fit& fit, const MemoryPlan& memory,
              std::int32_t length_max) {
  Json counts = Json::array();
  for (const std::int32_t length : context_lengths) {
    if (!fit.has_positions(length)) continue;
    counts.push_back({{"length", length}, {"sequences", fit.sequences_of(length)}});
  }
  json.update({{"weights_bytes", memory.weights},
               {"weights_bytes_max", std::max(memory.weights, plain_weight_bytes(outline))},
               {"workspace_bytes", memory.workspace},
               {"chunk_tokens", memory.chunk_tokens},
               {"mixed_tokens", memory.mixed_tokens},
               {"library_bytes", memory.library},
               {"process_bytes", memory.process},
               {"pinned_bytes", memory.pinned},
               {"pool_bytes", memory.pool_bytes()},
               {"total_bytes", memory.total()},
               {"cards", memory.cards},
               {"superblock_bytes", memory.pools.layout.superblock_bytes},
               {"superblocks", memory.pools.layout.superblocks},
               {"views", views_json(memory)},
               {"sequences", memory.sequences},
               {"length_max", memory.length_max},
               {"single_length_max", length_max},
               {"fits", counts}});
}

void print_json(const ModelSource& source, const ModelOutline& outline, const Fit& fit,
                const std::optional<MemoryPlan>& memory, std::size_t budget_bytes,
                const std::vector<Choice>& choices, double bytes_per_s, const FitFlags& options) {
  const std::string missing = missing_files_text(source, outline);
  const Wanted wanted = wanted_of(options, outline.plan);
  Json json = {{"model", source.name()},
               {"model_type", outline.plan.family},
               {"dtype", name_of(outline.geometry.load.activation)},
               {"quantize", models::name_of(outline.geometry.load.quantize)},
               {"lossless", outline.geometry.load.lossless},
               {"kv_dtype", name_of(outline.geometry.kv_dtype)},
               {"state_dtype", name_of(outline.geometry.state_dtype)},
               {"budget_bytes", budget_bytes},
               {"missing_files", missing.empty() ? Json() : Json(missing)},
               {"page_tokens", outline.geometry.page_tokens},
               {"kv_bytes_per_token", outline.geometry.kv_bytes_per_token},
               {"window_kv_bytes", outline.geometry.window_kv_bytes},
               {"state_bytes_per_sequence", outline.geometry.state_bytes_per_sequence},
               {"parallel", options.parallel},
               {"needed_tokens", wanted.tokens},
               {"read_bytes_per_s", bytes_per_s > 0 ? Json(bytes_per_s) : Json()},
               {"choices", choices_json(choices, bytes_per_s)},
               {"runs", memory.has_value()},
               {"fits_as_asked", memory && wanted.fits(*memory)}};
  if (memory) {
    add_plan(json, outline, fit, *memory, longest_of(fit, options.model.context, wanted));
  }
  write_output(pretty_json(json));
}

int fit_main(const FitFlags& options) {
  const Environment environment = read_environment();
  const RunSettings settings = resolve(options.model, environment);
  const ModelSource& source = settings.source;
  refuse_unread_format(source, options.json);
  ModelOutline outline = outline_of(settings, {.sequences = options.parallel});
  check_lanes(settings, outline.head.has_value());
  sample_lossless(settings, outline);
  const Budget budget = budget_of(settings);
  const int threads = settings.threads > 0 ? settings.threads : kernels::usable_cpus().count;
  const Fit fit(outline, budget, threads, options.model.chunk_tokens);
  const Wanted wanted = wanted_of(options, outline.plan);
  const auto memory = planned_for(fit, options.model.context, wanted);
  const auto choices = choices_of(settings, outline, budget, threads, options);
  const double rate = read_rate(settings, budget, choices);
  (options.json ? print_json : print_text)(source, outline, fit, memory, budget.bytes, choices,
                                           rate, options);
  if (!memory) fit.plan(options.model.context, options.parallel);         // throws with the numbers
  return wanted.fits(*memory) ? 0 : static_cast<int>(ErrorKind::memory);  // the first line says no
}

Action describe_fit(CLI::App& cli) {
  const auto options = std::make_shared<FitFlags>();  // CLI11 keeps pointers into it
  add_model_options(cli, options->model);
  add_pool_options(cli, options->model.pools);
  add_chunk_option(cli, options->model.chunk_tokens);
  add_speculation_options(cli, options->model.speculation);
  add_lane_options(cli, options->model.lanes);
  cli.add_option("--parallel", options->parallel, "sequences that are to run at once")
      ->check(CLI::Range(1, Fit::sequences_max))
      ->capture_default_str();
  cli.add_flag("-v,--verbose", options->verbose, "say how the engine divides the pools, too");
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options] { return fit_main(*options); };
}

}  // namespace

const Command fit_command = {"fit", "Show what fits into memory, before any weight is read",
                             describe_fit};

}  // namespace hyb::app
