#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hyb::app {

/// When so many requests come, in seconds: the gaps have a gamma distribution of shape `burstiness`
/// (1: a Poisson process, less: in bursts, infinity: even) and mean 1 / rate, and are scaled so
/// that the last request comes at count / rate, as vLLM has it. An infinite rate: all at 0.
std::vector<double> arrival_times(std::size_t count, double rate, double burstiness,
                                  std::uint64_t seed);

}  // namespace hyb::app
