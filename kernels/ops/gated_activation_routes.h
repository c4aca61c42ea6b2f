#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// y[i] = silu(gate[i]) * up[i]; y may be gate.
void gate_row_avx512(const float* gate, const float* up, float* y, std::int64_t count);
void gate_row_avx512(const bf16* gate, const bf16* up, bf16* y, std::int64_t count);
void gate_row_avx2(const float* gate, const float* up, float* y, std::int64_t count);
void gate_row_avx2(const bf16* gate, const bf16* up, bf16* y, std::int64_t count);

}  // namespace hyb::kernels
