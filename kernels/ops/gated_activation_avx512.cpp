#include "kernels/simd/avx512.h"
#include "kernels/simd/math.h"

#include "kernels/ops/gated_activation_routes.h"

namespace hyb::kernels {
namespace {

template <typename T>
void gate_row(const T* gate, const T* up, T* y, std::int64_t count) {
  each_vector(count, [&](std::int64_t i, auto part) {
    store(y + i, silu(load(gate + i, part)) * load(up + i, part), part);
  });
}

}  // namespace

void gate_row_avx512(const float* gate, const float* up, float* y, std::int64_t count) {
  gate_row(gate, up, y, count);
}
void gate_row_avx512(const bf16* gate, const bf16* up, bf16* y, std::int64_t count) {
  gate_row(gate, up, y, count);
}

}  // namespace hyb::kernels
