#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>

namespace hyb::sim {

/// Runs the seeds 0 .. count-1, or only the one that the environment names: HYB_SIM_SEED=17 replays
/// a failure. What `run` throws fails the test, and its seed is named. True: all were run, and
/// figures over them mean something.
template <typename Run>
bool run_seeds(std::uint64_t count, const Run& run) {
  const char* const one = std::getenv("HYB_SIM_SEED");
  const std::uint64_t first = one == nullptr ? 0 : std::strtoull(one, nullptr, 10);
  const std::uint64_t end = one == nullptr ? count : first + 1;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    try {
      run(seed);
    } catch (const std::exception& error) {
      FAIL("HYB_SIM_SEED=" << seed << " replays: " << std::string(error.what()));
    }
  }
  return one == nullptr;
}

/// Whether `run` throws for any of the seeds 0 .. most-1: a planted bug is found.
template <typename Run>
bool any_seed_fails(std::uint64_t most, const Run& run) {
  for (std::uint64_t seed = 0; seed < most; ++seed) {
    try {
      run(seed);
    } catch (const std::exception&) {
      return true;
    }
  }
  return false;
}

}  // namespace hyb::sim
