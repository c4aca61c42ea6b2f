#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/bench/card_watch.h"
#include "app/bench/cases.h"
#include "app/bench/load_driver.h"
#include "app/bench/metered_runner.h"
#include "app/bench/statistics.h"
#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb::app {

/// Latencies that an answer has to keep to count as good; milliseconds.
struct ServiceGoals {
  std::optional<double> ttft_ms = {}, tpot_ms = {}, e2el_ms = {};

  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

/// "ttft:100", "tpot:50", "e2el:2000". Throws Error(usage) for other names and numbers.
ServiceGoals parse_goals(std::span<const std::string> texts);

/// Percentages of latencies, from 0 to 100: "50,90,99". Throws Error(usage).
std::vector<double> parse_percentages(const std::string& text);

/// The figures of a workload as vLLM's `bench serve` defines them. Failed requests are counted and
/// are in no other figure.
///
///   TTFT  first token - sent           one per answer
///   TPOT  (last - first) / (n - 1)     one per answer of n > 1 tokens
///   ITL   gaps between tokens          all gaps of all answers
///   E2EL  last token - sent            one per answer
///
/// In two figures we differ: `requests_at_once_max` counts requests that really overlap (vLLM's
/// counts those that touch the same second), and the time a client holds a request back is a
/// figure of its own.
struct RequestMetrics {
  double duration_s = 0;
  std::int64_t completed = 0, failed = 0;
  std::int64_t input_tokens = 0, output_tokens = 0;
  double request_throughput = 0;       ///< answers per second
  double request_goodput = 0;          ///< answers per second that keep all goals
  double output_throughput = 0;        ///< generated tokens per second
  double total_token_throughput = 0;   ///< prompt and generated tokens per second
  double output_tokens_per_s_max = 0;  ///< of the best of the seconds since the first was sent
  std::int64_t requests_at_once_max = 0;
  Distribution ttft_ms, tpot_ms, itl_ms, e2el_ms;
  Distribution client_queue_ms;  ///< due, but held back by the limit of concurrency
  Distribution engine_queue_ms;  ///< sent, but in no step yet

  std::int64_t reused_tokens = 0, prefilled_tokens = 0, recomputed_tokens = 0;

  double hit_rate() const {
    return input_tokens == 0
               ? 0
               : static_cast<double>(reused_tokens) / static_cast<double>(input_tokens);
  }
};

/// Tokens per second that one user sees come: 1000 / median TPOT; 0: no answer has two tokens.
double tokens_per_s_of_user(const RequestMetrics& metrics);

struct MetricOptions {
  std::vector<double> percentages = {90, 95, 99};
  ServiceGoals goals;
};

RequestMetrics metrics_of(std::span<const RequestRecord> records, double duration_s,
                          const MetricOptions& options);

/// A latency: what it is called, and what it is of an answer.
struct Latency {
  std::string_view key;           ///< "ttft_ms"
  std::string_view name;          ///< "TTFT"
  std::string_view heading = {};  ///< of its block, as vLLM has it; empty: it is in JSON alone
  int digits;                     ///< of its median in a table
  Distribution RequestMetrics::*figures;
  void (*append)(const RequestRecord& answer, std::vector<double>& ms);
  bool is_of_client = false;  ///< it is 0 where the client holds no request back
};
extern const std::array<Latency, 6> latencies;

/// Counts of what an engine and its runner did besides answers, all of which costs time.
struct EngineEvents {
  std::int64_t steps = 0, failed_steps = 0;
  std::int64_t flips = 0;      ///< superblocks that changed their owner
  std::int64_t grown = 0;      ///< superblocks in use that were not before
  std::int64_t compacted = 0;  ///< pages and slots that were copied to empty a superblock
  std::int64_t snapshots = 0;  ///< that were taken
  std::int64_t resumes = 0;    ///< sequences that began from one
  std::int64_t evictions = 0;  ///< of snapshots
  std::int64_t preemptions = 0, deferrals = 0, prefix_waits = 0;
  std::int64_t graph_captures = 0, graph_replays = 0;  ///< on a card
  /// Filled where prompts have memory of their own: sequences that went to the memory of answers,
  /// their tokens, bytes that were copied for them, and microseconds from the first token of each
  /// until its answer could go on, in all; and bytes that were copied for prompts to begin with.
  std::int64_t handovers = 0, handover_tokens = 0, handover_bytes = 0, handover_us = 0;
  std::int64_t fetched_bytes = 0;

  EngineEvents operator-(const EngineEvents& before) const;
  EngineEvents& operator+=(const EngineEvents& more);
};

/// An event: its key, what it is called, and how often it came.
struct EngineEvent {
  const char* key;
  const char* name;
  std::int64_t EngineEvents::*count;
};
extern const std::array<EngineEvent, 18> engine_events;

/// All that has happened so far.
EngineEvents events_of(const EngineUsage& usage, std::int64_t graph_captures,
                       std::int64_t graph_replays);

/// A workload, run once.
struct Repetition {
  std::vector<RequestRecord> records;
  RequestMetrics metrics = {};
  EngineEvents events;
  SpeculationStats speculation = {};
  StepTotals steps;
  CardFigures card = {};
};

/// A row of the benchmark: also for a case that could not be run.
struct RequestRow {
  RequestCase test;
  std::string status = "ok";              ///< else why there are no or fewer repetitions or answers
  ErrorKind failure = ErrorKind::memory;  ///< of a row without any answer
  std::string started;                    ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<Repetition> repetitions;
  Ceilings ceilings;
  PoolUsage fullest;  ///< when the pools were at their fullest in a repetition

  bool is_measured() const;
};

/// Joins all repetitions: rates over the sum of the durations, latencies of all answers.
RequestMetrics pooled_metrics(const RequestRow& row, const MetricOptions& options);

/// Sums over the repetitions.
EngineEvents events_of(const RequestRow& row);

SpeculationStats speculation_of(const RequestRow& row);

CardFigures card_of(const RequestRow& row);

/// Rates of the runner over all repetitions; 0 where nothing was measured.
struct Achieved {
  double bytes_per_s = 0, flops_per_s = 0;  ///< of the least work, over the whole duration
  double roofline_share = 0;  ///< least time under the ceilings, over the whole duration
  double runner_share = 0;    ///< of the duration, inside the runner
};
Achieved achieved_of(const RequestRow& row);

}  // namespace hyb::app
