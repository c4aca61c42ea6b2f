#include "app/bench/elastic_shift.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/statistics.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr std::int32_t shift_prompt = 64, shift_answer = 32;
constexpr std::int32_t long_over_short_min = 4;
constexpr std::int32_t answer_part = 8;  ///< of a long sequence

/// Figures of one phase, or of all.
struct ShiftFigures {
  RequestMetrics metrics;
  EngineEvents events;
  double bound_s = 0;  ///< the least time of its steps
  double running = 0;  ///< mean over steps
  double tokens_per_step = 0;
  std::vector<double> step_ms;  ///< ascending
};

ShiftFigures shift_figures(const ShiftComparison& comparison, std::span<const ShiftRow> phases) {
  RequestRow all;
  ShiftFigures figures;
  std::int64_t tokens = 0;
  for (const ShiftRow& phase : phases) {
    figures.running += phase.running;
    for (const Repetition& one : phase.row.repetitions) {
      all.repetitions.push_back(one);
      figures.bound_s += one.steps.bound_s(comparison.ceilings);
      for (const MeteredStep& step : one.steps.steps) {
        figures.step_ms.push_back(1e3 * step.seconds);
        tokens += step.tokens;
      }
    }
  }
  figures.metrics = pooled_metrics(all, {.percentages = {}, .goals = {}});
  figures.events = events_of(all);
  std::sort(figures.step_ms.begin(), figures.step_ms.end());
  const double steps = std::max(1.0, static_cast<double>(figures.step_ms.size()));
  figures.running /= steps;
  figures.tokens_per_step = static_cast<double>(tokens) / steps;
  return figures;
}

/// Steps of as many spans and tokens cost about as much.
using StepKind = std::pair<std::int32_t, std::int64_t>;

template <typename Action>
void for_steps(const ShiftSetting& setting, const Action& action) {
  for (const ShiftRow& phase : setting.phases) {
    for (const Repetition& one : phase.row.repetitions) {
      for (const MeteredStep& step : one.steps.steps) action(step);
    }
  }
}

/// The best of the fixed ratios by a figure, the greatest.
template <typename Figure>
const ShiftSetting& best_ratio(const ShiftComparison& comparison, const Figure& figure) {
  return *std::max_element(
      comparison.settings.begin() + 1, comparison.settings.end(),
      [&](const ShiftSetting& a, const ShiftSetting& b) { return figure(a) < figure(b); });
}

Json shift_row(const ShiftComparison& comparison, const ShiftSetting& setting,
               std::string_view phase, std::span<const ShiftRow> rows) {
  const ShiftFigures of = shift_figures(comparison, rows);
  Json durations = Json::array();
  for (const ShiftRow& one : rows) {
    for (const Repetition& run : one.row.repetitions) durations.push_back(run.metrics.duration_s);
  }
  Json row = {{"memory", setting.name()},
              {"state_share", setting.state_share ? Json(*setting.state_share) : Json(nullptr)},
              {"phase", phase},
              {"requests", of.metrics.completed},
              {"input_tokens", of.metrics.input_tokens},
              {"output_tokens", of.metrics.output_tokens},
              {"duration_s", of.metrics.duration_s},
              {"least_duration_s", of.bound_s},
              {"output_throughput", of.metrics.output_throughput},
              {"total_token_throughput", of.metrics.total_token_throughput},
              {"mean_ttft_ms", of.metrics.ttft_ms.mean},
              {"median_ttft_ms", of.metrics.ttft_ms.median},
              {"mean_running", of.running},
              {"steps", of.step_ms.size()},
              {"tokens_per_step", of.tokens_per_step},
              {"preemptions", of.events.preemptions},
              {"recomputed_tokens", of.metrics.recomputed_tokens},
              {"flips", of.events.flips},
              {"median_step_ms", percentile(of.step_ms, 50)},
              {"p99_step_ms", percentile(of.step_ms, 99)},
              {"durations", std::move(durations)}};
  if (rows.size() < 2) return row;
  const FlipCost cost = flip_cost(comparison, setting);
  row["flip_steps"] = cost.steps;
  row["median_flip_excess_ms"] = cost.p50_ms;
  row["p99_flip_excess_ms"] = cost.p99_ms;
  row["median_other_excess_ms"] = cost.other_p50_ms;
  row["p99_other_excess_ms"] = cost.other_p99_ms;
  return row;
}

}  // namespace

RequestCase case_of(const ShiftPhase& phase) {
  RequestCase test;
  test.prompts = phase.requests;
  test.input_tokens = phase.prompt_tokens;
  test.output_tokens = phase.answer_tokens;
  return test;
}

ElasticShift elastic_shift(const MemoryLayout& layout, const ShiftLimits& limits) {
  const MemoryLayout least = with_state_share(layout, limits.state_share_max);
  const std::int64_t room =
      std::int64_t{least.fixed_superblocks.front()} * layout.groups.front().pages_per_superblock;
  const std::int64_t wanted = std::int64_t{shift_states} *
                              layout.groups.front().pages_per_superblock /
                              layout.slots.per_superblock / limits.scale_down;
  const std::int64_t tokens =
      std::min<std::int64_t>(std::min(room, wanted) * layout.page_tokens, limits.length_max);
  constexpr std::int32_t short_tokens = shift_prompt + shift_answer;
  if (tokens < long_over_short_min * short_tokens) {
    throw Error(
        ErrorKind::memory,
        fmt::format("elastic-shift: long sequences would have {}, and short ones have {}; {}",
                    counted(tokens, "token"), short_tokens,
                    wanted * layout.page_tokens == tokens && limits.scale_down > 1
                        ? "give a smaller --scale-down"
                        : "give more --pool-memory or --context"));
  }
  const auto length = static_cast<std::int32_t>(tokens);
  const auto phase = [&](std::string_view name, std::int32_t prompt, std::int32_t answer) {
    const std::int32_t at_once = sequences_at_once(layout, prompt + answer, limits.sequences_max);
    return ShiftPhase{.name = name,
                      .requests = 2 * std::max(1, at_once),
                      .prompt_tokens = prompt,
                      .answer_tokens = answer};
  };
  const ShiftPhase longs = phase("long", length - length / answer_part, length / answer_part);
  ShiftPhase shorts = phase("short", shift_prompt, shift_answer);
  shorts.requests = std::max(shorts.requests, longs.requests * length / short_tokens);
  return {.phases = {longs, shorts}};
}

std::vector<double> parse_shares(std::span<const std::string> texts) {
  std::vector<double> shares;
  for (const std::string& one : texts) {
    const double share = parse_number<double>(one).value_or(0);
    if (!(share > 0 && share < 1)) {
      throw Error(ErrorKind::usage, fmt::format("--state-share: '{}' is not between 0 and 1", one));
    }
    shares.push_back(share);
  }
  return shares;
}

std::string ShiftSetting::name() const {
  return state_share ? fmt::format("{:g}", *state_share) : "elastic";
}

FlipCost flip_cost(const ShiftComparison& comparison, const ShiftSetting& setting) {
  std::map<StepKind, std::vector<double>> without;
  for (const ShiftSetting& any : comparison.settings) {
    for_steps(any, [&](const MeteredStep& step) {
      if (step.flips == 0) without[{step.spans, step.tokens}].push_back(1e3 * step.seconds);
    });
  }
  for (auto& [kind, times] : without) std::sort(times.begin(), times.end());
  std::set<StepKind> has_flips;
  for_steps(setting, [&](const MeteredStep& step) {
    if (step.flips > 0) has_flips.emplace(step.spans, step.tokens);
  });
  std::vector<double> with, other;
  for_steps(setting, [&](const MeteredStep& step) {
    const auto alike = without.find({step.spans, step.tokens});
    if (alike == without.end() || !has_flips.contains(alike->first)) return;
    const double excess = 1e3 * step.seconds - percentile(alike->second, 50);
    (step.flips > 0 ? with : other).push_back(excess);
  });
  std::sort(with.begin(), with.end());
  std::sort(other.begin(), other.end());
  return {.steps = std::ssize(with),
          .without = std::ssize(other),
          .p50_ms = percentile(with, 50),
          .p99_ms = percentile(with, 99),
          .other_p50_ms = percentile(other, 50),
          .other_p99_ms = percentile(other, 99)};
}

Table shift_table(const ShiftComparison& comparison) {
  Table table = {.columns = columns_of("phase|memory|>answers (t/s)|>all (t/s)|>least time (s)"
                                       "|>TTFT mean (ms)|>p50|>running|>steps|>tokens/step"
                                       "|>preempted|>flips|>step p50 (ms)|>p99")};
  const auto add = [&](std::string_view phase, const ShiftSetting& setting,
                       std::span<const ShiftRow> rows) {
    const ShiftFigures of = shift_figures(comparison, rows);
    table.rows.push_back(
        {std::string(phase), setting.name(), fmt::format("{:.1f}", of.metrics.output_throughput),
         fmt::format("{:.1f}", of.metrics.total_token_throughput),
         fmt::format("{:.2f}", of.bound_s), fmt::format("{:.0f}", of.metrics.ttft_ms.mean),
         fmt::format("{:.0f}", of.metrics.ttft_ms.median), fmt::format("{:.1f}", of.running),
         std::to_string(of.step_ms.size()), fmt::format("{:.1f}", of.tokens_per_step),
         std::to_string(of.events.preemptions), std::to_string(of.events.flips),
         fmt::format("{:.2f}", percentile(of.step_ms, 50)),
         fmt::format("{:.2f}", percentile(of.step_ms, 99))});
  };
  for (std::size_t i = 0; i < comparison.shift.phases.size(); ++i) {
    for (const ShiftSetting& setting : comparison.settings) {
      add(comparison.shift.phases[i].name, setting, std::span(setting.phases).subspan(i, 1));
    }
  }
  for (const ShiftSetting& setting : comparison.settings) add("all", setting, setting.phases);
  return table;
}

std::string shift_verdict(const ShiftComparison& comparison) {
  const ShiftSetting& elastic = comparison.settings.front();
  std::string text;
  const auto compare = [&](std::string_view phase, auto rows_of) {
    const auto rate = [&](const ShiftSetting& setting) {
      return shift_figures(comparison, rows_of(setting)).metrics.total_token_throughput;
    };
    const auto least = [&](const ShiftSetting& setting) {
      return -shift_figures(comparison, rows_of(setting)).bound_s;
    };
    if (comparison.settings.size() > 1) {
      const ShiftSetting& best = best_ratio(comparison, rate);
      const ShiftSetting& leanest = best_ratio(comparison, least);
      text += fmt::format("{}: {:.2f} of the tokens/s of the best ratio, {}", phase,
                          rate(elastic) / rate(best), best.name());
      if (least(elastic) < 0) {
        text += fmt::format("; by the least time of its steps {:.2f}, {}",
                            least(leanest) / least(elastic), leanest.name());
      }
      text += '\n';
    }
  };
  for (std::size_t i = 0; i < comparison.shift.phases.size(); ++i) {
    compare(comparison.shift.phases[i].name,
            [i](const ShiftSetting& setting) { return std::span(setting.phases).subspan(i, 1); });
  }
  compare("all", [](const ShiftSetting& setting) { return std::span(setting.phases); });
  const FlipCost cost = flip_cost(comparison, elastic);
  text += fmt::format(
      "{} with changes of owners took {:.2f} ms (p50) and {:.2f} ms (p99) longer than the median "
      "of their like without; {} of these, {:.2f} and {:.2f} ms\n",
      counted(cost.steps, "step"), cost.p50_ms, cost.p99_ms, counted(cost.without, "step"),
      cost.other_p50_ms, cost.other_p99_ms);
  return text;
}

std::vector<Json> shift_rows(const ShiftComparison& comparison) {
  std::vector<Json> rows;
  for (const ShiftSetting& setting : comparison.settings) {
    for (std::size_t i = 0; i < comparison.shift.phases.size(); ++i) {
      rows.push_back(shift_row(comparison, setting, comparison.shift.phases[i].name,
                               std::span(setting.phases).subspan(i, 1)));
    }
    rows.push_back(shift_row(comparison, setting, "all", setting.phases));
  }
  return rows;
}

}  // namespace hyb::app
