#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace hyb::perf {

/// Nanoseconds that `action` takes.
template <typename Action>
double nanoseconds(const Action& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - begin).count();
}

inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Pushes everything out of the processor's caches (up to 128 MiB of them).
class CacheFlush {
 public:
  CacheFlush() : bytes_(256U << 20) {}
  std::uint64_t operator()() {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at < bytes_.size(); at += 64) sum += ++bytes_[at];
    return sum;
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

inline void report(const char* what, double figure, const char* unit) {
  std::printf("%-64s %12.1f %s\n", what, figure, unit);
}

}  // namespace hyb::perf
