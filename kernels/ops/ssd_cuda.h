#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/ops/ssd.h"

/// The routes of cuda::ssd, which chooses among them by what the host knows.
namespace hyb::kernels::cuda {

/// Token by token, the state in registers: the bits of mamba_step and of any other cut. Any shape.
void ssd_scan(Stream& stream, const Ssd& op);

}  // namespace hyb::kernels::cuda
