#include "kernels/simd/avx2.h"

#include "kernels/ops/ssd_vector.h"

namespace hyb::kernels::avx2 {

void ssd_share(const SsdShare<float, float>& job) { run_share(job); }
void ssd_share(const SsdShare<float, bf16>& job) { run_share(job); }
void ssd_share(const SsdShare<bf16, float>& job) { run_share(job); }
void ssd_share(const SsdShare<bf16, bf16>& job) { run_share(job); }

}  // namespace hyb::kernels::avx2
