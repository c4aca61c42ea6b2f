#include "app/replay/report.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/statistics.h"
#include "app/options/options.h"

namespace hyb::app {
namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.3f}", bytes / 1e9); }

/// In the units of --budget: "2.00 GB", "512 kB".
std::string decimal_text(std::int64_t bytes) {
  constexpr std::array names = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < names.size(); ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value,
                     unit == 0 || value >= 100 ? 0
                     : value >= 10             ? 1
                                               : 2,
                     names[unit]);
}

std::string percent(double share, int digits = 1) {
  return fmt::format("{:.{}f}", 100 * share, digits);
}

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }
double share_of(std::int64_t part, std::int64_t whole) {
  return share_of(static_cast<double>(part), static_cast<double>(whole));
}

bool has_budget(const ReplayRun& run) {
  return run.options.kind != PolicyKind::none && run.options.kind != PolicyKind::bound;
}

Json run_json(const ReplayRun& run) {
  const PolicyOptions& options = run.options;
  const CacheCounters& counters = run.counters;
  const std::int64_t held = counters.kv_bytes + counters.snapshot_bytes + counters.idle_bytes;
  Json row = {
      {"policy", word_of(words::policy, options.kind)},
      {"ratio", nullptr},
      {"block_tokens", nullptr},
      {"alpha", nullptr},
      {"snapshots", word_of(words::snapshots, options.snapshots)},
      {"budget_bytes", options.budget_bytes},
      {"host_tier_bytes", options.host_bytes},
      {"tokens_from_host_tier", counters.tokens_from_host},
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
        {"host_tier", counters.host_bytes},
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

constexpr std::array<std::int64_t, 8> prompt_lengths = {500,   1000,  2000,  5000,
                                                        10000, 20000, 32768, 100000};

/// The table for people and the rows for programs.
struct AnalysisResult {
  Table table;
  Json json = Json::array();
};

double budget_gigabytes(const ReplayRun& run) {
  return static_cast<double>(run.options.budget_bytes) / 1e9;
}

std::string budget_text(const ReplayRun& run) {
  return fmt::format("{:.2f}", budget_gigabytes(run));
}

Json named(const ReplayRun& run) {
  return {{"policy", label_of(run.options)}, {"budget_bytes", run.options.budget_bytes}};
}

AnalysisResult reuse(std::span<const ReplayRun> runs) {
  AnalysisResult result{
      .table = {columns_of("policy|>budget GB|>KV tokens stored|>reused %|>states stored"
                           "|>reused %|>lost for want of a state %")}};
  for (const ReplayRun& run : runs) {
    const CacheCounters& counters = run.counters;
    const double kv = share_of(counters.kv_tokens_reused, counters.kv_tokens_created);
    const double states = share_of(counters.snapshots_reused, counters.snapshots_created);
    const double lost = share_of(run.matched_tokens - run.reused_tokens, run.prompt_tokens);
    result.table.rows.push_back({label_of(run.options), budget_text(run),
                                 std::to_string(counters.kv_tokens_created), percent(kv, 2),
                                 std::to_string(counters.snapshots_created), percent(states, 2),
                                 percent(lost, 2)});
    Json row = named(run);
    row["kv_tokens_created"] = counters.kv_tokens_created;
    row["kv_reused_share"] = kv;
    row["snapshots_created"] = counters.snapshots_created;
    row["snapshots_reused_share"] = states;
    row["lost_token_share"] = lost;
    result.json.push_back(row);
  }
  return result;
}

AnalysisResult bytes(const ReplayShape& shape) {
  constexpr std::array<std::int64_t, 4> blocks = {16, 32, 64, 128};
  AnalysisResult result{.table = {columns_of(">tokens|>KV GB|>+ one state|>+ one int8")}};
  for (const std::int64_t block : blocks) {
    result.table.columns.push_back({fmt::format("+ one per {}", block), Align::right});
  }
  result.table.columns.push_back({"transformer", Align::right});
  for (const std::int64_t length : prompt_lengths) {
    const auto kv = static_cast<double>(length * shape.kv_bytes_per_token);
    const auto transformer = static_cast<double>(length * shape.transformer_kv_bytes_per_token);
    const auto with = [&](std::int64_t count, std::int64_t size) {
      return kv + static_cast<double>(count) * static_cast<double>(size);
    };
    Json row = {{"tokens", length},
                {"kv_bytes", kv},
                {"one_state_bytes", with(1, shape.state_bytes)},
                {"one_int8_bytes", with(1, shape.state_bytes_int8)},
                {"transformer_bytes", nullptr},
                {"conv_share_of_state", share_of(shape.conv_bytes, shape.state_bytes)}};
    std::vector<std::string> cells = {std::to_string(length), gigabytes(kv),
                                      gigabytes(with(1, shape.state_bytes)),
                                      gigabytes(with(1, shape.state_bytes_int8))};
    for (const std::int64_t block : blocks) {
      const double all = with(length / block, shape.state_bytes);
      row[fmt::format("state_per_{}_bytes", block)] = all;
      cells.push_back(gigabytes(all));
    }
    if (transformer > 0) row["transformer_bytes"] = transformer;
    cells.push_back(transformer > 0 ? gigabytes(transformer) : "-");
    result.table.rows.push_back(std::move(cells));
    result.json.push_back(row);
  }
  return result;
}

AnalysisResult efficiency(const ReplayShape& shape) {
  AnalysisResult result{
      .table = {columns_of(
          ">tokens|>TFLOPs saved|>FLOPs/byte exact|>FLOPs/byte int8|>FLOPs/byte KV alone")}};
  for (const std::int64_t length : prompt_lengths) {
    const double flops = shape.flops.of(length);
    const auto kv = static_cast<double>(length * shape.kv_bytes_per_token);
    const auto per_byte = [&](double all) { return all > 0 ? flops / all : 0; };
    const double exact = per_byte(kv + static_cast<double>(shape.state_bytes));
    const double int8 = per_byte(kv + static_cast<double>(shape.state_bytes_int8));
    result.table.rows.push_back({std::to_string(length), fmt::format("{:.2f}", flops / 1e12),
                                 fmt::format("{:.0f}", exact), fmt::format("{:.0f}", int8),
                                 kv > 0 ? fmt::format("{:.0f}", per_byte(kv)) : "-"});
    result.json.push_back({{"tokens", length},
                           {"flops", flops},
                           {"flops_per_byte_exact", exact},
                           {"flops_per_byte_int8", int8},
                           {"flops_per_byte_kv", per_byte(kv)}});
  }
  return result;
}

/// 0: below 512 tokens, 1: below 1024, and so on.
std::size_t bin_of(std::int32_t tokens) {
  std::size_t bin = 0;
  for (std::int64_t end = 512; tokens >= end; end *= 2) ++bin;
  return bin;
}

AnalysisResult bins(std::span<const ReplayRun> runs) {
  AnalysisResult result{.table = {columns_of(">prompt tokens|>requests")}};
  std::size_t count = 0;
  for (const ReplayRun& run : runs) {
    result.table.columns.push_back(
        {fmt::format("{} {} GB", label_of(run.options), budget_text(run)), Align::right});
    for (const RequestFigures& request : run.requests) {
      count = std::max(count, bin_of(request.prompt_tokens) + 1);
    }
  }
  for (std::size_t bin = 0; bin < count; ++bin) {
    const std::int64_t first = bin == 0 ? 0 : std::int64_t{256} << bin;
    const std::int64_t last = (std::int64_t{512} << bin) - 1;
    std::vector<std::string> cells = {fmt::format("{}-{}", first, last), ""};
    for (const ReplayRun& run : runs) {
      std::int64_t tokens = 0, reused = 0, requests = 0;
      for (const RequestFigures& request : run.requests) {
        if (bin_of(request.prompt_tokens) != bin) continue;
        tokens += request.prompt_tokens;
        reused += request.served.reused;
        ++requests;
      }
      cells[1] = std::to_string(requests);
      cells.push_back(requests > 0 ? percent(share_of(reused, tokens), 2) : "-");
      Json row = named(run);
      row["tokens_first"] = first;
      row["tokens_last"] = last;
      row["requests"] = requests;
      row["token_hit_rate"] = share_of(reused, tokens);
      result.json.push_back(row);
    }
    result.table.rows.push_back(std::move(cells));
  }
  return result;
}

AnalysisResult quantiles(const ReplayShape& shape, std::span<const ReplayRun> runs) {
  constexpr std::array<double, 5> shares = {0.05, 0.25, 0.5, 0.75, 0.95};
  AnalysisResult result{.table = {columns_of("policy|>budget GB|of")}};
  for (const double share : shares) {
    result.table.columns.push_back({fmt::format("P{:.0f}", 100 * share), Align::right});
  }
  for (const ReplayRun& run : runs) {
    std::vector<double> rates, seconds;
    for (const RequestFigures& request : run.requests) {
      rates.push_back(request.hit_rate());
      seconds.push_back(shape.seconds.of(request.prompt_tokens) -
                        shape.seconds.of(request.served.reused));
    }
    const auto add = [&](const char* what, const char* key, std::vector<double>& values,
                         double scale) {
      std::sort(values.begin(), values.end());
      std::vector<std::string> cells = {label_of(run.options), budget_text(run), what};
      Json row = named(run);
      row["of"] = key;
      for (const double share : shares) {
        const double value = percentile(values, 100 * share);
        cells.push_back(fmt::format("{:.2f}", scale * value));
        row[fmt::format("p{:.0f}", 100 * share)] = value;
      }
      result.table.rows.push_back(std::move(cells));
      result.json.push_back(row);
    };
    add("hit rate %", "hit_rate", rates, 100);
    add("prefill ms", "prefill_seconds", seconds, 1000);
  }
  return result;
}

AnalysisResult analyse(Analysis analysis, const ReplayShape& shape,
                       std::span<const ReplayRun> runs) {
  switch (analysis) {
    case Analysis::reuse:
      return reuse(runs);
    case Analysis::bytes:
      return bytes(shape);
    case Analysis::efficiency:
      return efficiency(shape);
    case Analysis::bins:
      return bins(runs);
    case Analysis::quantiles:
      break;
  }
  return quantiles(shape, runs);
}

}  // namespace

Table runs_table(std::span<const ReplayRun> runs) {
  Table table = {.columns = columns_of("policy|>budget|>hit %|>FLOPs saved %|>prefill s|>saved s"
                                       "|>evictions|>flips|>KV|>snapshots|>idle")};
  for (const ReplayRun& run : runs) {
    const int digits = run.seconds_total < 10 ? 3 : 1;
    table.rows.push_back(
        {label_of(run.options), has_budget(run) ? decimal_text(run.options.budget_bytes) : "-",
         percent(run.hit_rate()), percent(share_of(run.flops_saved, run.flops_total)),
         fmt::format("{:.{}f}", run.seconds_total, digits),
         fmt::format("{:.{}f}", run.seconds_saved, digits), std::to_string(run.counters.evictions),
         std::to_string(run.counters.flips), decimal_text(run.counters.kv_bytes),
         decimal_text(run.counters.snapshot_bytes), decimal_text(run.counters.idle_bytes)});
  }
  return table;
}

Json runs_json(std::span<const ReplayRun> runs) {
  Json rows = Json::array();
  for (const ReplayRun& run : runs) rows.push_back(run_json(run));
  return rows;
}

Table analysis_table(Analysis analysis, const ReplayShape& shape, std::span<const ReplayRun> runs) {
  return analyse(analysis, shape, runs).table;
}

Json analysis_json(Analysis analysis, const ReplayShape& shape, std::span<const ReplayRun> runs) {
  return analyse(analysis, shape, runs).json;
}

}  // namespace hyb::app
