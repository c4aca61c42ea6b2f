#pragma once

#include "kernels/arena/driver_table.h"
#include "kernels/linear/cublaslt_table.h"

namespace hyb::kernels::cuda {

/// The driver's virtual-memory calls for the current device; its primary context is current
/// afterwards. Throws Error(usage) that says what is missing.
DriverTable driver();

/// cuBLASLt of this machine, or why there is none.
CublasLt matrix_library();

}  // namespace hyb::kernels::cuda
