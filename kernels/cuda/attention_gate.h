#pragma once

#include <cstdint>

#include "kernels/cuda/silu.h"
#include "kernels/cuda/vectors.h"

/// An answer of attention as it is written: rounded, and where there is a gate times its sigmoid
/// and rounded again.
namespace hyb::kernels::cuda {

template <typename T>
__device__ __forceinline__ T gated(float value, const T* gate) {
  const T plain = rounded<T>(value);
  return gate == nullptr ? plain : rounded<T>(to_float(plain) * sigmoid(to_float(*gate)));
}

/// Two neighbours; `gate` is aligned to both.
__device__ __forceinline__ std::uint32_t gated_pair(float low, float high, const bf16* gate) {
  const std::uint32_t pair = pack_bf16(low, high);
  if (gate == nullptr) return pair;
  const float2 z = load_pair(gate);
  return pack_bf16(std::bit_cast<float>(pair << 16) * sigmoid(z.x),
                   std::bit_cast<float>(pair & 0xffff0000U) * sigmoid(z.y));
}

}  // namespace hyb::kernels::cuda
