#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/ops/delta_rule.h"

/// The routes of cuda::delta_rule, which chooses among them by what the host knows.
namespace hyb::kernels::cuda {

/// Token by token, the state in registers: the bits of any other cut. Any shape.
void delta_rule_scan(Stream& stream, const DeltaRule& op);

}  // namespace hyb::kernels::cuda
