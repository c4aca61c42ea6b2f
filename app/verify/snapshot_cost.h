#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "app/verify/passages.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb::app {

/// Kullback-Leibler divergence, in nats, of the distribution that `found` are the logits of from
/// the one that `expected` are: sum over p * (log p - log q), in double. 0 where they are the same;
/// never below 0. Infinite when a logit is NaN, or q is 0 where p is not.
double divergence(std::span<const float> expected, std::span<const float> found);

/// Divergences of many rows.
struct DivergenceSummary {
  std::int64_t rows = 0;
  std::int64_t likeliest_differs = 0;     ///< rows whose likeliest token is another one
  double mean = 0, p99 = 0, largest = 0;  ///< nats; p99: the smallest that 99 % of rows do not pass
};

/// How far the distributions of next tokens move when a sequence goes on from int8 snapshots of its
/// recurrent state: the same tokens are run twice, once with the state as it is, once
/// going through a snapshot wherever one is taken, and every row after the first is compared.
class SnapshotCost {
 public:
  /// The runner has packed snapshots, unless the model has no recurrent layers; it has room for
  /// two of the longest passages and outlives this. All cuts derive from the seed.
  SnapshotCost(Runner& runner, std::uint64_t seed);

  /// Draws the passage's answer from exact states, then runs both with `snapshots` snapshots (1 or
  /// more) in a row at random lengths: each holds the error of those before it. Passages of less
  /// than 2 tokens have no row after a snapshot. Throws Error(memory) when the pools are too small
  /// and Error(runtime) when a signal asked to stop.
  void measure(const Passage& passage, std::int32_t snapshots);

  DivergenceSummary summary() const;

 private:
  struct Pair;

  std::vector<std::int32_t> random_cuts(std::int32_t tokens, std::int32_t snapshots);
  void run(std::span<const TokenId> tokens, std::span<const std::int32_t> cuts);
  void advance(Pair& pair, std::int32_t count, bool compares);
  void compare(const StepResult& result);

  Runner* runner_;
  std::uint64_t seed_;
  MemoryPool pool_;
  std::vector<double> divergences_;
  std::int64_t likeliest_differs_ = 0;
};

}  // namespace hyb::app
