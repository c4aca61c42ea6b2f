#include "kernels/simd/avx2.h"

#include "kernels/ops/rms_norm_vector.h"

namespace hyb::kernels::avx2 {

void rms_norm_rows(const RmsNormRows<float>& job) { norm_rows(job); }
void rms_norm_rows(const RmsNormRows<bf16>& job) { norm_rows(job); }

}  // namespace hyb::kernels::avx2
