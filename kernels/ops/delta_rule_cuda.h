#pragma once

#include <limits>

#include "kernels/cuda/stream.h"
#include "kernels/ops/delta_rule.h"

/// The routes of cuda::delta_rule, which chooses among them by what the host knows.
namespace hyb::kernels::cuda {

/// Token by token, the state in registers: the bits of any other cut. Any shape. Chains, or spans
/// that are in none, of more than `tokens_max` tokens are left alone.
void delta_rule_scan(Stream& stream, const DeltaRule& op,
                     int tokens_max = std::numeric_limits<int>::max());

/// In chunks of 64 tokens, by matrix instructions; where there are several spans, those of at most
/// delta_scan_tokens go token by token, with the bits of the scan: a chain goes one way or the
/// other by its sum. A bf16 state is rounded where a span ends only; where a sequence is cut
/// changes the answer, within the bounds that stand at the kernel.
inline constexpr int delta_scan_tokens = 16;
void delta_rule_chunked(Stream& stream, const DeltaRule& op);
/// bf16 x, a shape and alignment that it has a kernel for, and workspace enough.
bool delta_rule_chunked_takes(const DeltaRule& op);

}  // namespace hyb::kernels::cuda
