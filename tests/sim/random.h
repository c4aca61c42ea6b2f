#pragma once

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include <doctest/doctest.h>

namespace hyb::sim {

/// A source of choices; everything a scenario does follows from its seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}

  std::uint64_t bits() { return generator_(); }
  std::int32_t between(std::int32_t low, std::int32_t high) {  ///< both included
    const auto values = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int32_t>(generator_() % values);
  }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(generator_() % count); }
  bool chance(std::int32_t percent) { return between(0, 99) < percent; }

 private:
  std::mt19937_64 generator_;
};

/// How many schedules a simulation runs: HYB_SIM_SCHEDULES=100000 that many.
inline std::uint64_t schedules(std::uint64_t usual) {
  const char* const wanted = std::getenv("HYB_SIM_SCHEDULES");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

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
