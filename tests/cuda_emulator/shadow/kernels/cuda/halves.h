#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

inline float half_to_float(std::uint32_t bits) {
  return to_float(f16{static_cast<std::uint16_t>(bits)});
}
inline std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto number = [](std::uint32_t half) { return std::bit_cast<float>(half << 16); };
  const auto sum = [&](int shift) {  // of 8 bits each: exact in f32 but for the last rounding
    return number(a >> shift) * number(b >> shift) + number(c >> shift);
  };
  return pack_bf16(sum(0), sum(16));
}

}  // namespace hyb::kernels::cuda
