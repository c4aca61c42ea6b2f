#pragma once

#include <cstdint>
#include <random>

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

}  // namespace hyb::sim
