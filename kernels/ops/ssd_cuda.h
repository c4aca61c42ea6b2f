#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/ops/ssd.h"

/// The routes of cuda::ssd, which chooses among them by what the host knows.
namespace hyb::kernels::cuda {

/// Token by token, the state in registers: the bits of mamba_step and of any other cut. Any shape.
void ssd_scan(Stream& stream, const Ssd& op);

/// In chunks of 64 tokens, by matrix instructions, cut into segments where spans are few and the
/// workspace allows it. A bf16 state is rounded where a span ends only; where a sequence is cut
/// changes the answer, within the bounds that stand at the kernel.
void ssd_chunked(Stream& stream, const Ssd& op);
/// bf16 x, and a shape and alignment that it has a kernel for.
bool ssd_chunked_takes(const Ssd& op);

}  // namespace hyb::kernels::cuda
