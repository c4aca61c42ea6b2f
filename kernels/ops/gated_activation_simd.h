#pragma once

#include "kernels/simd/math.h"

#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

template <typename T>
void gate_all(const T* gate, const T* up, T* y, std::int64_t count) {
  each_vector(count, [&](std::int64_t i, auto part) {
    store(y + i, silu(load(gate + i, part)) * load(up + i, part), part);
  });
}

}  // namespace

template <>
void gate_row<vector_isa>(const float* gate, const float* up, float* y, std::int64_t count) {
  gate_all(gate, up, y, count);
}
template <>
void gate_row<vector_isa>(const bf16* gate, const bf16* up, bf16* y, std::int64_t count) {
  gate_all(gate, up, y, count);
}

}  // namespace hyb::kernels
