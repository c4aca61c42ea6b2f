#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/ops/delta_rule.h"

/// The routes of cuda::delta_rule, which chooses among them by what the host knows.
namespace hyb::kernels::cuda {

/// Token by token, the state in registers: the bits of any other cut. Any shape.
void delta_rule_scan(Stream& stream, const DeltaRule& op);

/// In chunks of 64 tokens, by matrix instructions. A bf16 state is rounded where a span ends only;
/// where a sequence is cut changes the answer, within the bounds that stand at the kernel.
void delta_rule_chunked(Stream& stream, const DeltaRule& op);
/// bf16 x, a shape and alignment that it has a kernel for, and workspace enough.
bool delta_rule_chunked_takes(const DeltaRule& op);

}  // namespace hyb::kernels::cuda
