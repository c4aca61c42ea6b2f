#pragma once

#include <cstdint>
#include <vector>

#include "app/verify/divergence.h"
#include "app/verify/passages.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb::app {

/// Measures how far the distributions of next tokens move when a sequence continues from int8
/// snapshots of its recurrent state: the same tokens are run twice, once with the state as it is,
/// once going through a snapshot wherever one is taken, and every row after the first is compared.
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

  DivergenceSummary summary() const { return divergences_.summary(); }

 private:
  std::vector<std::int32_t> random_cuts(std::int32_t tokens, std::int32_t snapshots);

  Runner* runner_;
  std::uint64_t seed_;
  MemoryPool pool_;
  Divergences divergences_;
};

}  // namespace hyb::app
