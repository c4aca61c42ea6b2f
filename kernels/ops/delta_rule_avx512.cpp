#include "kernels/simd/avx512.h"

#include "kernels/ops/delta_rule_vector.h"

namespace hyb::kernels::avx512 {

void delta_rule_share(const DeltaRuleShare<float, float>& job) { run_share(job); }
void delta_rule_share(const DeltaRuleShare<float, bf16>& job) { run_share(job); }
void delta_rule_share(const DeltaRuleShare<bf16, float>& job) { run_share(job); }
void delta_rule_share(const DeltaRuleShare<bf16, bf16>& job) { run_share(job); }

}  // namespace hyb::kernels::avx512
