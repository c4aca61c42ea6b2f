#pragma once

#include <bit>
#include <cmath>
#include <limits>

/// This file has what the passes of sampling on a card read. Included by .cu files only.
namespace hyb::kernels::cuda {

constexpr int sample_bins = 2048;

using Mass = unsigned long long;

/// 2^44: 2^19 weights of 1 fit, and a sum of a whole vocabulary is within 2^-26 of its weights'.
constexpr float mass_of_one = 0x1p44F;

/// Falls where the logit rises; 0 and -0 are one.
__device__ __forceinline__ unsigned rank_key(float logit) {
  const auto bits = std::bit_cast<unsigned>(logit + 0.0F);
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000U);
}

__device__ __forceinline__ float logit_of_key(unsigned key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key : ~key & 0x7fffffffU);
}

/// A row's logits, and how they become weights.
struct LogitRow {
  float* logits;
  int count;
  float largest = 0.0F, inverse_temperature = 1.0F;
  float least = -std::numeric_limits<float>::max();  ///< what is below is out
  const unsigned* mask = nullptr;                    ///< SampleRow's; null: all tokens

  __device__ float at(int id) const {
    const bool is_allowed = mask == nullptr || (mask[id / 32] >> (id % 32) & 1U) != 0;
    return is_allowed ? logits[id] : -INFINITY;
  }
  __device__ bool is_out(float logit) const { return logit < least; }
  __device__ float weight(float logit) const {
    return expf((logit - largest) * inverse_temperature);
  }
  __device__ Mass mass(float logit) const { return static_cast<Mass>(weight(logit) * mass_of_one); }

  /// Bins of equal distance from the largest; the last one is for what weighs nothing.
  __device__ int bin(float logit) const {
    constexpr float end = 31.0F;  // exp(-31) is less than 2^-44
    const float distance = (largest - logit) * inverse_temperature;
    if (!(distance < end)) return sample_bins - 1;
    return static_cast<int>(distance * ((sample_bins - 2) / end));
  }
};

/// Says what is searched: the likeliest first, of equals the lower ids.
struct Cut {
  unsigned key = 0xffffffffU;  ///< of the last one that is in
  int id = 0x7fffffff;         ///< the last one that is in, of those with this key
  __device__ bool has(unsigned other, int at) const {
    return other < key || (other == key && at <= id);
  }
};

}  // namespace hyb::kernels::cuda
