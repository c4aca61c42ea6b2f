#pragma once

#include "kernels/arena/cuda_arena.h"
#include "kernels/linear/library_products.h"

namespace hyb::kernels::cuda {

/// The driver's virtual-memory calls for the current device; its primary context is current
/// afterwards. Throws Error(usage) that says what is missing.
DriverTable driver();

/// cuBLASLt of this machine, or why there is none.
CublasLt matrix_library();

}  // namespace hyb::kernels::cuda
