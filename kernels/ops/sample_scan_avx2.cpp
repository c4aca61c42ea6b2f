#include "kernels/simd/avx2.h"

#include "kernels/ops/sample_scan_vector.h"

namespace hyb::kernels::avx2 {

LargestLogit largest_logit(const float* logits, std::int32_t count) {
  return find_largest(logits, count);
}

double weigh_logits(const LogitWeights& job) { return weigh(job); }

}  // namespace hyb::kernels::avx2
