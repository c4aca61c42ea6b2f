#include "app/verify/snapshot_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "app/ui/process.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Of each sequence in a step: the logits of both are held until they are compared.
constexpr std::int32_t rows_max = 16;

template <typename T>
T need(std::optional<T> taken) {
  if (!taken) {
    throw Error(ErrorKind::memory,
                "verify: the pools are too small for two sequences and what "
                "they leave in memory");
  }
  return *std::move(taken);
}

/// log of the sum of all exp(logit).
double log_sum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

std::ptrdiff_t likeliest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

}  // namespace

double divergence(std::span<const float> expected, std::span<const float> found) {
  const double log_p_sum = log_sum(expected), log_q_sum = log_sum(found);
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double log_p = expected[i] - log_p_sum, log_q = found[i] - log_q_sum;
    const double p = std::exp(log_p);
    if (p != 0) sum += p * (log_p - log_q);
  }
  return std::isnan(sum) ? infinite : std::max(0.0, sum);
}

/// The same tokens twice.
struct SnapshotCost::Pair {
  std::span<const TokenId> tokens;
  Memory exact, packed;
};

SnapshotCost::SnapshotCost(Runner& runner, std::uint64_t seed)
    : runner_(&runner), seed_(seed), pool_(runner.capacity().memory) {}

std::vector<std::int32_t> SnapshotCost::random_cuts(std::int32_t tokens, std::int32_t snapshots) {
  std::mt19937_64 random(seed_++);
  std::set<std::int32_t> cuts;  // above 0 and below the end, so that a row follows each
  const std::int32_t count = std::min(snapshots, tokens - 1);
  while (static_cast<std::int32_t>(cuts.size()) < count) {
    cuts.insert(1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(tokens - 1)));
  }
  return {cuts.begin(), cuts.end()};
}

void SnapshotCost::measure(const Passage& passage, std::int32_t snapshots) {
  require(snapshots > 0, "snapshot cost: a sequence goes through one snapshot or more");
  const Trace answer = std::move(Replay(*runner_).run({&passage, 1}).front());
  std::vector<TokenId> tokens = passage.prompt;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  if (tokens.size() < 2) return;
  // Replay had a pool of its own: what it left in superblocks has no owner now.
  pool_.resync_owners();
  run(tokens, random_cuts(static_cast<std::int32_t>(tokens.size()), snapshots));
}

void SnapshotCost::run(std::span<const TokenId> tokens, std::span<const std::int32_t> cuts) {
  const Capacity capacity = runner_->capacity();
  const std::int32_t chunk =
      std::max(1, std::min({rows_max, capacity.sequences_max / 2, capacity.step_tokens / 2}));
  Pair pair = {.tokens = tokens, .exact = need(pool_.start()), .packed = need(pool_.start())};
  const auto run_to = [&](std::int32_t end, bool compares) {
    while (pair.exact.length() < end) {
      advance(pair, std::min(chunk, end - pair.exact.length()), compares);
    }
  };
  for (const std::int32_t cut : cuts) {
    run_to(cut, cut != cuts.front());
    const Checkpoint checkpoint = need(pair.packed.checkpoint(Precision::int8));
    pair.packed = {};
    pair.packed = need(pool_.resume(checkpoint));
  }
  run_to(static_cast<std::int32_t>(tokens.size()), true);
}

void SnapshotCost::advance(Pair& pair, std::int32_t count, bool compares) {
  if (stop_signal() != 0) throw Error(ErrorKind::runtime, "interrupted");
  const SamplingParams greedy;
  const std::int32_t begin = pair.exact.length();
  Step step;
  step.keep_logits = compares;
  for (Memory* memory : {&pair.exact, &pair.packed}) {
    if (!memory->reserve(count)) need(std::optional<Memory>());
    step.spans.push_back({.tokens = pair.tokens.subspan(static_cast<std::size_t>(begin),
                                                        static_cast<std::size_t>(count)),
                          .position = begin,
                          .tables = memory->tables(),
                          .read_slot = memory->read_slot(),
                          .write_slot = memory->write_slot()});
    for (std::int32_t row = 0; compares && row < count; ++row) {
      step.spans.back().samples.push_back(
          {.token = row,
           .params = &greedy,
           .draw = 0,
           .history = pair.tokens.first(static_cast<std::size_t>(begin + row + 1)),
           .prompt_tokens = begin + row + 1});
    }
  }
  step.orders = pool_.take_orders();
  const StepResult result = runner_->run(step);
  pair.exact.keep(count);
  pair.packed.keep(count);
  if (compares) compare(result);
}

/// The first half of the rows is the exact sequence's.
void SnapshotCost::compare(const StepResult& result) {
  const std::size_t rows = result.sampled.size() / 2;
  const std::size_t width = result.logits.size() / result.sampled.size();
  const std::span<const float> logits = result.logits;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto exact = logits.subspan(row * width, width);
    const auto packed = logits.subspan((rows + row) * width, width);
    divergences_.push_back(divergence(exact, packed));
    if (likeliest(exact) != likeliest(packed)) ++likeliest_differs_;
  }
}

DivergenceSummary SnapshotCost::summary() const {
  DivergenceSummary summary = {.rows = static_cast<std::int64_t>(divergences_.size()),
                               .likeliest_differs = likeliest_differs_};
  if (divergences_.empty()) return summary;
  std::vector<double> sorted = divergences_;
  std::sort(sorted.begin(), sorted.end());
  for (const double value : sorted) summary.mean += value / static_cast<double>(sorted.size());
  summary.p99 = sorted[(sorted.size() * 99 + 99) / 100 - 1];
  summary.largest = sorted.back();
  return summary;
}

}  // namespace hyb::app
