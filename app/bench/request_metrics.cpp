#include "app/bench/request_metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr double ms = 1e3;

std::optional<double> number_of(std::string_view text) {
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// vLLM counts the TPOT of an answer of one token as 0 here.
bool is_good(const RequestRecord& record, const ServiceGoals& goals) {
  const auto keeps = [](double seconds, const std::optional<double>& goal_ms) {
    return !goal_ms || seconds * ms <= *goal_ms;
  };
  const auto tokens = static_cast<double>(record.token_s.size());
  const double decode_s = record.token_s.back() - record.token_s.front();
  return keeps(record.ttft_s(), goals.ttft_ms) &&
         keeps(tokens > 1 ? decode_s / (tokens - 1) : 0, goals.tpot_ms) &&
         keeps(record.e2el_s(), goals.e2el_ms);
}

/// Most tokens of one of the seconds since the first request was sent.
double best_second(std::span<const RequestRecord> records) {
  double begin = INFINITY, end = 0;
  for (const RequestRecord& record : records) {
    if (!record.is_answered()) continue;
    begin = std::min(begin, record.started_s);
    end = std::max(end, record.token_s.back());
  }
  if (begin > end) return 0;
  std::vector<double> tokens(static_cast<std::size_t>(end - begin) + 1);
  for (const RequestRecord& record : records) {
    if (!record.is_answered()) continue;
    for (const double time : record.token_s) ++tokens[static_cast<std::size_t>(time - begin)];
  }
  return *std::max_element(tokens.begin(), tokens.end());
}

std::int64_t most_at_once(std::span<const RequestRecord> records) {
  std::vector<std::pair<double, int>> changes;  // an end goes before a start of the same moment
  for (const RequestRecord& record : records) {
    if (!record.is_answered()) continue;
    changes.emplace_back(record.started_s, 1);
    changes.emplace_back(record.token_s.back(), -1);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t open = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, open += change);
  return most;
}

}  // namespace

ServiceGoals parse_goals(std::span<const std::string> texts) {
  ServiceGoals goals;
  for (const std::string& text : texts) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string name = text.substr(0, colon);
    const auto value = number_of(std::string_view(text).substr(std::min(colon + 1, text.size())));
    std::optional<double>* const goal = name == "ttft"   ? &goals.ttft_ms
                                        : name == "tpot" ? &goals.tpot_ms
                                        : name == "e2el" ? &goals.e2el_ms
                                                         : nullptr;
    if (goal == nullptr || !value || *value < 0) {
      throw Error(ErrorKind::usage,
                  fmt::format("--goodput: '{}' is not ttft:MS, tpot:MS or e2el:MS", text));
    }
    *goal = *value;
  }
  return goals;
}

std::vector<double> parse_percentages(const std::string& text) {
  std::vector<double> percentages;
  for (const std::string_view one : split(text, ',')) {
    const auto value = number_of(one);
    if (!value || *value < 0 || *value > 100) {
      throw Error(
          ErrorKind::usage,
          fmt::format("--metric-percentiles: '{}': numbers from 0 to 100, such as 50,99", text));
    }
    percentages.push_back(*value);
  }
  return percentages;
}

const std::array<Latency, 6> latencies = {
    {{.key = "ttft_ms",
      .name = "TTFT",
      .heading = "Time to First Token",
      .digits = 1,
      .figures = &RequestMetrics::ttft_ms,
      .append = [](const RequestRecord& answer,
                   std::vector<double>& all) { all.push_back(answer.ttft_s() * ms); }},
     {.key = "tpot_ms",
      .name = "TPOT",
      .heading = "Time per Output Token (excl. 1st token)",
      .digits = 2,
      .figures = &RequestMetrics::tpot_ms,
      .append =
          [](const RequestRecord& answer, std::vector<double>& all) {
            const std::vector<double>& times = answer.token_s;
            if (times.size() < 2) return;
            all.push_back((times.back() - times.front()) * ms /
                          static_cast<double>(times.size() - 1));
          }},
     {.key = "itl_ms",
      .name = "ITL",
      .heading = "Inter-token Latency",
      .digits = 2,
      .figures = &RequestMetrics::itl_ms,
      .append =
          [](const RequestRecord& answer, std::vector<double>& all) {
            const std::vector<double>& times = answer.token_s;
            for (std::size_t i = 1; i < times.size(); ++i) {
              all.push_back((times[i] - times[i - 1]) * ms);
            }
          }},
     {.key = "e2el_ms",
      .name = "E2EL",
      .heading = "End-to-end Latency",
      .digits = 1,
      .figures = &RequestMetrics::e2el_ms,
      .append = [](const RequestRecord& answer,
                   std::vector<double>& all) { all.push_back(answer.e2el_s() * ms); }},
     {.key = "client_queue_ms",
      .name = "client queue",
      .heading = "Client Queue Time",
      .digits = 1,
      .figures = &RequestMetrics::client_queue_ms,
      .append = [](const RequestRecord& answer,
                   std::vector<double>& all) { all.push_back(answer.client_queue_s() * ms); },
      .is_of_client = true},
     {.key = "engine_queue_ms",
      .name = "engine queue",
      .digits = 1,
      .figures = &RequestMetrics::engine_queue_ms,
      .append = [](const RequestRecord& answer, std::vector<double>& all) {
        all.push_back(static_cast<double>(answer.usage.queued.count()) / 1e6);
      }}}};

double tokens_per_s_of_user(const RequestMetrics& metrics) {
  return metrics.tpot_ms.median > 0 ? 1000 / metrics.tpot_ms.median : 0;
}

RequestMetrics metrics_of(std::span<const RequestRecord> records, double duration_s,
                          const MetricOptions& options) {
  RequestMetrics metrics;
  metrics.duration_s = duration_s;
  std::int64_t good = 0;
  for (const RequestRecord& record : records) {
    if (!record.is_answered()) {
      ++metrics.failed;
      continue;
    }
    ++metrics.completed;
    metrics.input_tokens += record.prompt_tokens;
    metrics.output_tokens += std::ssize(record.token_s);
    metrics.reused_tokens += record.usage.reused_tokens;
    metrics.prefilled_tokens += record.usage.prefilled_tokens;
    metrics.recomputed_tokens += record.usage.recomputed_tokens;
    if (is_good(record, options.goals)) ++good;
  }
  const auto per_second = [&](std::int64_t count) {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0.0;
  };
  metrics.request_throughput = per_second(metrics.completed);
  metrics.request_goodput = per_second(good);
  metrics.output_throughput = per_second(metrics.output_tokens);
  metrics.total_token_throughput = per_second(metrics.input_tokens + metrics.output_tokens);
  // Counted by whole seconds, which a short run has none of; no peak is below the mean.
  metrics.output_tokens_per_s_max = std::max(best_second(records), metrics.output_throughput);
  metrics.requests_at_once_max = most_at_once(records);

  for (const Latency& latency : latencies) {
    std::vector<double> samples;
    for (const RequestRecord& record : records) {
      if (record.is_answered()) latency.append(record, samples);
    }
    metrics.*latency.figures = distribution_of(std::move(samples), options.percentages);
  }
  return metrics;
}

const std::array<EngineEvent, 18> engine_events = {
    {{"steps", "steps", &EngineEvents::steps},
     {"failed_steps", "failed steps", &EngineEvents::failed_steps},
     {"flips", "flips", &EngineEvents::flips},
     {"superblocks_grown", "grow", &EngineEvents::grown},
     {"units_compacted", "compacted", &EngineEvents::compacted},
     {"snapshots_taken", "snapshots", &EngineEvents::snapshots},
     {"snapshots_resumed", "resumed", &EngineEvents::resumes},
     {"evictions", "evictions", &EngineEvents::evictions},
     {"preemptions", "preemptions", &EngineEvents::preemptions},
     {"deferrals", "deferrals", &EngineEvents::deferrals},
     {"prefix_waits", "prefix waits", &EngineEvents::prefix_waits},
     {"graph_captures", "graph captures", &EngineEvents::graph_captures},
     {"graph_replays", "graph replays", &EngineEvents::graph_replays},
     {"handovers", "handed over", &EngineEvents::handovers},
     {"handover_tokens", "tokens handed over", &EngineEvents::handover_tokens},
     {"handover_bytes", "bytes handed over", &EngineEvents::handover_bytes},
     {"handover_us", "us until they were", &EngineEvents::handover_us},
     {"fetched_bytes", "bytes fetched for prompts", &EngineEvents::fetched_bytes}}};

EngineEvents EngineEvents::operator-(const EngineEvents& before) const {
  EngineEvents since = *this;
  for (const EngineEvent& event : engine_events) since.*event.count -= before.*event.count;
  return since;
}

EngineEvents& EngineEvents::operator+=(const EngineEvents& more) {
  for (const EngineEvent& event : engine_events) this->*event.count += more.*event.count;
  return *this;
}

EngineEvents events_of(const EngineUsage& usage, std::int64_t graph_captures,
                       std::int64_t graph_replays) {
  return {.steps = usage.steps,
          .failed_steps = usage.failed_steps,
          .flips = usage.pool.owner_changes,
          .grown = usage.pool.superblocks - usage.pool.superblocks_free,
          .compacted = usage.pool.compacted_units,
          .snapshots = usage.prefixes.published,
          .resumes = usage.prefixes.hits,
          .evictions = usage.prefixes.evicted,
          .preemptions = usage.preemptions,
          .deferrals = usage.deferrals,
          .prefix_waits = usage.prefix_waits,
          .graph_captures = graph_captures,
          .graph_replays = graph_replays,
          .handovers = usage.handovers.sequences,
          .handover_tokens = usage.handovers.tokens,
          .handover_bytes = usage.handovers.bytes,
          .handover_us =
              std::chrono::duration_cast<std::chrono::microseconds>(usage.handovers.time).count(),
          .fetched_bytes = usage.handovers.bytes_fetched};
}

bool RequestRow::is_measured() const {
  return std::any_of(repetitions.begin(), repetitions.end(),
                     [](const Repetition& one) { return one.metrics.completed > 0; });
}

RequestMetrics pooled_metrics(const RequestRow& row, const MetricOptions& options) {
  std::vector<RequestRecord> records;
  double duration_s = 0, best_second = 0;
  std::int64_t most_at_once = 0;
  for (const Repetition& one : row.repetitions) {
    records.insert(records.end(), one.records.begin(), one.records.end());
    duration_s += one.metrics.duration_s;
    best_second = std::max(best_second, one.metrics.output_tokens_per_s_max);
    most_at_once = std::max(most_at_once, one.metrics.requests_at_once_max);
  }
  RequestMetrics all = metrics_of(records, duration_s, options);
  all.output_tokens_per_s_max = best_second;
  all.requests_at_once_max = most_at_once;
  return all;
}

EngineEvents events_of(const RequestRow& row) {
  EngineEvents sum;
  for (const Repetition& one : row.repetitions) sum += one.events;
  return sum;
}

SpeculationStats speculation_of(const RequestRow& row) {
  SpeculationStats sum;
  for (const Repetition& one : row.repetitions) sum += one.speculation;
  return sum;
}

CardFigures card_of(const RequestRow& row) {
  CardFigures all;
  for (const Repetition& one : row.repetitions) all.add(one.card);
  return all;
}

Achieved achieved_of(const RequestRow& row) {
  double duration_s = 0, bound_s = 0, inside_s = 0;
  models::Work work;
  for (const Repetition& one : row.repetitions) {
    duration_s += one.metrics.duration_s;
    bound_s += one.steps.bound_s(row.ceilings);
    inside_s += std::chrono::duration<double>(one.steps.inside).count();
    work += one.steps.work;
  }
  if (duration_s <= 0) return {};
  return {.bytes_per_s = work.bytes / duration_s,
          .flops_per_s = work.flops / duration_s,
          .roofline_share = bound_s / duration_s,
          .runner_share = inside_s / duration_s};
}

}  // namespace hyb::app
