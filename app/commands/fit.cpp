#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/commands/commands.h"
#include "app/environment.h"
#include "app/options.h"
#include "app/session.h"
#include "app/ui/table.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/thread_pool.h"

namespace hyb::app {
namespace {

struct FitFlags {
  ModelOptions model;
  std::int32_t parallel = 1;
  bool json = false;
};

constexpr std::array<std::int32_t, 4> context_lengths = {1024, 4096, 32768, 131072};

std::string count_text(const Fit& fit, std::int32_t length) {
  if (!fit.has_positions(length)) return "-";
  const std::int32_t count = fit.sequences_of(length);
  return count == Fit::sequences_max ? fmt::format("{} or more", count) : std::to_string(count);
}

std::string length_text(std::int32_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : std::to_string(length);
}

/// Of weights none of which take 12 bits.
std::size_t plain_weight_bytes(const ModelOutline& outline) {
  models::LoadOptions load = outline.geometry.load;
  load.lossless = false;
  load.above_12_bits = 0;
  return weight_bytes(outline.plan, kernels::Device::cpu, load);
}

void print_text(const ModelSource& source, const ModelOutline& outline, const Fit& fit,
                const MemoryPlan& memory, const FitFlags& options) {
  const models::Geometry& geometry = outline.geometry;
  Table parts = {.columns = {{"part"}, {"bytes", Align::right}, {"what"}}, .rows = {}};
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
  const MemoryLayout& layout = memory.pools.layout;
  add("pools", memory.pool_bytes(),
      fmt::format("{} of {}, each of which is", counted(layout.superblocks, "superblock"),
                  bytes_text(layout.superblock_bytes)));
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
  add("total", memory.total(),
      fmt::format("of {} allowed{}", bytes_text(memory.budget),
                  memory.cards > 1 ? fmt::format(", on each of {} cards", memory.cards) : ""));
  if (memory.pinned > 0) {
    add("pinned", memory.pinned,
        "of the machine's memory besides: tables on their way to the card");
  }

  Table table = {.columns = {{"tokens each", Align::right}, {"sequences at once", Align::right}}};
  for (const std::int32_t length : context_lengths) {
    table.rows.push_back({length_text(length), count_text(fit, length)});
  }
  const std::string missing = missing_files_text(source, outline);
  write_output(
      sanitized_line(source.name()) + '\n' +
      (missing.empty() ? "" : "not complete: " + missing + '\n') + '\n' + plain_text(parts) + '\n' +
      fmt::format("keys and values {}, {}; state {}, {} per sequence\n", name_of(geometry.kv_dtype),
                  kv_text(geometry), name_of(geometry.state_dtype),
                  bytes_text(geometry.state_bytes_per_sequence)) +
      fmt::format("--parallel {}: room for {} of up to {} tokens each\n", options.parallel,
                  memory.sequences, memory.length_max) +
      "longest single sequence: " + counted(fit.length_max(), "token") + "\n\n" +
      plain_text(table));
}

/// What a superblock is to each of its views.
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

void print_json(const ModelSource& source, const ModelOutline& outline, const Fit& fit,
                const MemoryPlan& memory, const FitFlags& options) {
  const std::string missing = missing_files_text(source, outline);
  Json counts = Json::array();
  for (const std::int32_t length : context_lengths) {
    if (!fit.has_positions(length)) continue;
    counts.push_back({{"length", length}, {"sequences", fit.sequences_of(length)}});
  }
  const Json json = {{"model", source.name()},
                     {"model_type", outline.plan.family},
                     {"dtype", name_of(outline.activation)},
                     {"quantize", models::name_of(outline.geometry.load.quantize)},
                     {"lossless", outline.geometry.load.lossless},
                     {"kv_dtype", name_of(outline.geometry.kv_dtype)},
                     {"state_dtype", name_of(outline.geometry.state_dtype)},
                     {"budget_bytes", memory.budget},
                     {"missing_files", missing.empty() ? Json() : Json(missing)},
                     {"weights_bytes", memory.weights},
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
                     {"page_tokens", outline.geometry.page_tokens},
                     {"kv_bytes_per_token", outline.geometry.kv_bytes_per_token},
                     {"window_kv_bytes", outline.geometry.window_kv_bytes},
                     {"state_bytes_per_sequence", outline.geometry.state_bytes_per_sequence},
                     {"parallel", options.parallel},
                     {"sequences", memory.sequences},
                     {"length_max", memory.length_max},
                     {"single_length_max", fit.length_max()},
                     {"fits", counts}};
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
  const MemoryPlan memory = fit.plan(options.model.context, options.parallel);
  (options.json ? print_json : print_text)(source, outline, fit, memory, options);
  return 0;
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
  cli.add_flag("--json", options->json, "print one JSON object");
  return [options] { return fit_main(*options); };
}

}  // namespace

const Command fit_command = {"fit", "Show what fits into memory, before any weight is read",
                             describe_fit};

}  // namespace hyb::app
