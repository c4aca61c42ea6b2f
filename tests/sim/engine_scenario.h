#pragma once

#include <cstdint>

#include "tests/sim/late_runner.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim {

struct EngineCounts {
  std::int64_t steps = 0, answers = 0, preempted_tokens = 0, reused = 0, cancelled = 0,
               failed_steps = 0, sink_failures = 0, spans_max = 0;
  std::int64_t hits = 0, evicted = 0, prefix_waits = 0, owner_changes = 0, draws = 0;
  std::int64_t steps_ahead = 0, dropped = 0;  ///< begun early; prepared, but never begun
  std::int64_t refused = 0;                   ///< could not be prepared
};

/// A random life of one engine: random pools, chunks and limits; prompts that begin like earlier
/// ones; requests submitted and cancelled at any time, also from inside a sink; steps and sinks
/// that throw. Every answer is compared with what the naive model says alone, the books are audited
/// after every step, and at the end only snapshots are held. Throws Violation at the first fault.
EngineCounts run_engine_scenario(std::uint64_t seed, Bug bug = Bug::none, bool checks_rules = true);

/// The same on a runner whose steps run beside the host, and whose slots hold nothing but the state
/// behind the last token that was run. No token of a cancelled request is drawn after the call that
/// cancels it.
EngineCounts run_late_scenario(std::uint64_t seed, LateBug bug = LateBug::none);

}  // namespace hyb::sim
