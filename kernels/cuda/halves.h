#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// The number of the lower 16 bits as f16.
__device__ __forceinline__ float half_to_float(std::uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(bits)));
  return value;
}

/// a * b + c of three pairs of bf16, each rounded to nearest, once.
__device__ __forceinline__ std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b,
                                                            std::uint32_t c) {
  std::uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
}

}  // namespace hyb::kernels::cuda
