#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/base/error.h"

namespace hyb::kernels::cuda {

/// Throws Error naming the call and CUDA's reason: memory where the device has not so much, else
/// runtime.
inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  throw Error(error == cudaErrorMemoryAllocation ? ErrorKind::memory : ErrorKind::runtime,
              std::string("cuda: ") + call + ": " + cudaGetErrorString(error));
}

}  // namespace hyb::kernels::cuda
