#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/engine/handover_stats.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

/// Counts of drafts so far.
struct SpeculationStats {
  std::int64_t verify_steps = 0;                               ///< of one sequence each
  std::array<std::int64_t, drafts_max> drafted{}, accepted{};  ///< by position after the token
  std::int64_t branch_drafts = 0;   ///< other tokens in the place of these
  std::int64_t branches_taken = 0;  ///< steps in which tokens of a branch were drawn
  double drafting_seconds = 0;

  DraftCounts total() const;
  /// Returns the share of drafts that was accepted, for each position that had some.
  std::vector<double> accepted_shares() const;
  SpeculationStats operator-(const SpeculationStats& before) const;
  SpeculationStats& operator+=(const SpeculationStats& more);
};

/// Counts of memory and prefixes so far.
struct EngineUsage {
  PoolUsage pool;
  PrefixCacheStats prefixes = {};
  PrefillCost cost;                ///< used by eviction
  std::int32_t snapshots = 0;      ///< in the prefix tree now
  std::int64_t steps = 0;          ///< given to the runner
  std::int64_t steps_ahead = 0;    ///< of these, launched before the last one's text was emitted
  std::int64_t prefill_steps = 0;  ///< of these, in the prefill lane
  std::int64_t failed_steps = 0;   ///< of these, the ones that threw
  std::int64_t preemptions = 0;    ///< sequences that lost their memory and waited again
  std::int64_t deferrals = 0;  ///< times that one could not continue, or start, for lack of memory
  std::int64_t prefix_waits = 0;  ///< times that one waited for another's prefix
  std::int64_t tier_waits = 0;    ///< times that one waited for what a tier has of its tokens
  SpeculationStats speculation;
  /// Counts the memory of prompts, where they have their own; `prefixes` counts what begins on
  /// either side.
  PoolUsage prompt_pool = {};
  std::int32_t prompt_snapshots = 0;  ///< in the prefix tree of that side now
  HandoverStats handovers = {};
};

}  // namespace hyb
