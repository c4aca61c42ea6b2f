#include "app/replay/run_rows.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/options.h"
#include "app/replay/policy_list.h"

namespace hyb::app {
namespace {

std::string gigabytes(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e9);
}

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

bool has_budget(const ReplayRun& run) {
  return run.options.kind != PolicyKind::none && run.options.kind != PolicyKind::bound;
}

Json run_json(const ReplayRun& run) {
  const PolicyOptions& options = run.options;
  const CacheCounters& counters = run.counters;
  const bool is_int8 = options.snapshots == SnapshotFormat::int8;
  const std::int64_t held = counters.kv_bytes + counters.snapshot_bytes + counters.idle_bytes;
  Json row = {
      {"policy", name_of(options.kind)},
      {"ratio", nullptr},
      {"block_tokens", nullptr},
      {"alpha", nullptr},
      {"snapshots", is_int8 ? "int8" : "exact"},
      {"budget_bytes", options.budget_bytes},
      {"superblocks", options.layout == nullptr ? Json() : Json(options.layout->superblocks)},
      {"requests", run.requests.size()},
      {"prompt_tokens", run.prompt_tokens},
      {"reused_tokens", run.reused_tokens},
      {"matched_tokens", run.matched_tokens},
      {"token_hit_rate", run.hit_rate()},
      {"flops_total", run.flops_total},
      {"flops_saved", run.flops_saved},
      {"prefill_seconds_total", run.seconds_total},
      {"prefill_seconds_saved", run.seconds_saved},
      {"evictions", counters.evictions},
      {"flips", counters.flips},
      {"bytes_by_owner",
       {{"kv", counters.kv_bytes},
        {"snapshots", counters.snapshot_bytes},
        {"idle", counters.idle_bytes},
        {"free", has_budget(run) ? std::max<std::int64_t>(options.budget_bytes - held, 0) : 0}}},
      {"snapshots_created", counters.snapshots_created},
      {"snapshots_reused", counters.snapshots_reused},
      {"kv_tokens_created", counters.kv_tokens_created},
      {"kv_tokens_reused", counters.kv_tokens_reused}};
  if (options.kind == PolicyKind::sglang) row["ratio"] = options.ratio;
  if (options.kind == PolicyKind::vllm_plus) row["block_tokens"] = options.block_tokens;
  if (counters.alpha) row["alpha"] = *counters.alpha;
  return row;
}

}  // namespace

Table runs_table(std::span<const ReplayRun> runs) {
  Table table = {.columns = {{"policy"},
                             {"budget GB", Align::right},
                             {"hit %", Align::right},
                             {"FLOPs saved %", Align::right},
                             {"prefill s", Align::right},
                             {"saved s", Align::right},
                             {"evictions", Align::right},
                             {"flips", Align::right},
                             {"KV GB", Align::right},
                             {"snapshots GB", Align::right},
                             {"idle GB", Align::right}},
                 .rows = {}};
  for (const ReplayRun& run : runs) {
    table.rows.push_back(
        {label_of(run.options), has_budget(run) ? gigabytes(run.options.budget_bytes) : "-",
         percent(run.hit_rate()), percent(share_of(run.flops_saved, run.flops_total)),
         fmt::format("{:.1f}", run.seconds_total), fmt::format("{:.1f}", run.seconds_saved),
         std::to_string(run.counters.evictions), std::to_string(run.counters.flips),
         gigabytes(run.counters.kv_bytes), gigabytes(run.counters.snapshot_bytes),
         gigabytes(run.counters.idle_bytes)});
  }
  return table;
}

Json runs_json(std::span<const ReplayRun> runs) {
  Json rows = Json::array();
  for (const ReplayRun& run : runs) rows.push_back(run_json(run));
  return rows;
}

}  // namespace hyb::app
