#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {

template <>
void VectorRoute<vector_isa, CapRow>::run(const CapRow& row) {
  const Vec cap = broadcast(row.cap);
  each_vector(row.count, [&](std::int64_t i, auto part) {
    store(row.x + i, cap * tanh(load(row.x + i, part) / cap), part);
  });
}

}  // namespace hyb::kernels
