#include "app/bench/engine_events.h"

namespace hyb::app {

EngineEvents EngineEvents::operator-(const EngineEvents& before) const {
  return {.steps = steps - before.steps,
          .failed_steps = failed_steps - before.failed_steps,
          .flips = flips - before.flips,
          .grown = grown - before.grown,
          .compacted = compacted - before.compacted,
          .snapshots = snapshots - before.snapshots,
          .resumes = resumes - before.resumes,
          .evictions = evictions - before.evictions,
          .preemptions = preemptions - before.preemptions,
          .deferrals = deferrals - before.deferrals,
          .prefix_waits = prefix_waits - before.prefix_waits,
          .graph_captures = graph_captures - before.graph_captures,
          .graph_replays = graph_replays - before.graph_replays};
}

EngineEvents& EngineEvents::operator+=(const EngineEvents& more) {
  const EngineEvents none;
  return *this = *this - (none - more);
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
          .graph_replays = graph_replays};
}

}  // namespace hyb::app
