#include "kernels/simd/avx512.h"

#include "kernels/ops/gated_norm_vector.h"

namespace hyb::kernels::avx512 {

void gated_norm_rows(const GatedNormRows<float>& job) { norm_rows(job); }
void gated_norm_rows(const GatedNormRows<bf16>& job) { norm_rows(job); }

}  // namespace hyb::kernels::avx512
