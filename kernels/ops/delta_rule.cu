#include "kernels/cuda/routes.h"
#include "kernels/ops/delta_rule_cuda.h"

namespace hyb::kernels::cuda {

void delta_rule(Stream& stream, const DeltaRule& op) { delta_rule_scan(stream, op); }

}  // namespace hyb::kernels::cuda
