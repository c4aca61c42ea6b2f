#pragma once

#include <cstdint>

#include "tests/sim/layered_runner.h"
#include "tests/sim/misuse.h"

namespace hyb::sim {

struct PrefixCounts {
  std::int64_t schedules = 0, steps = 0, draws = 0, hits = 0, published = 0, evicted = 0,
               owner_changes = 0, shortened = 0, dry = 0, failed_steps = 0, packed = 0,
               page_copies = 0, moved = 0, lookups = 0, deepest = 0;
};

/// A random life of a pool and a prefix tree under a driver without engine: sequences with common
/// prefixes that start, resume, run in chunks, keep fewer tokens than they ran, publish, conclude
/// and are given up at any time, in pools that are almost always dry. Every draw is compared with
/// the naive model, every lookup with all snapshots there are (where kinds give up pages the tree
/// tries the nearest ones only: it may find a shorter prefix, never a longer one), the books are
/// audited after every step, and at the end every byte is back. Throws Violation at the first
/// fault.
PrefixCounts run_prefix_scenario(std::uint64_t seed, Fault fault = Fault::none,
                                 Misuse misuse = Misuse::none, bool checks_rules = true);

}  // namespace hyb::sim
