#pragma once

#include <cstdint>

#include "tests/sim/layered_runner.h"

namespace hyb::sim {

struct ElasticCounts {
  std::int64_t schedules = 0, steps = 0, answers = 0, requests = 0;
  // Schedules in which it happened.
  std::int64_t hits = 0, evictions = 0, owner_changes = 0, preemptions = 0, deferrals = 0,
               prefix_waits = 0, spills = 0, fetches = 0, tier_waits = 0, dropped_fetches = 0,
               merges = 0, failed_steps = 0, failed_reads = 0, failed_disks = 0, cancelled = 0,
               packed = 0, moved = 0, withheld = 0, shrunk = 0, short_of_memory = 0, chained = 0;
};

/// A random life of the real engine, scheduler, prefix tree, pool and disk tier over a model with
/// all kinds of layer memory: requests that begin like earlier ones, several choices, cancels,
/// pools that are dry, steps and disks that fail at any call, a device with less memory than the
/// pools were promised. Every answer is compared with what
/// the naive model says alone, and at the end every byte is back. Throws Violation at the first
/// fault.
ElasticCounts run_elastic_scenario(std::uint64_t seed, Fault fault = Fault::none,
                                   bool checks_rules = true);

}  // namespace hyb::sim
