#include "kernels/simd/avx512.h"

#include "kernels/ops/ssd_vector.h"

namespace hyb::kernels::avx512 {

void ssd_share(const SsdShare<float, float>& job) { run_share(job); }
void ssd_share(const SsdShare<float, bf16>& job) { run_share(job); }
void ssd_share(const SsdShare<bf16, float>& job) { run_share(job); }
void ssd_share(const SsdShare<bf16, bf16>& job) { run_share(job); }

}  // namespace hyb::kernels::avx512
