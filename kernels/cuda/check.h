#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "core/base/error.h"

namespace hyb::kernels::cuda {

/// Throws Error(memory): `call` was refused `bytes` bytes, and what the card has left. 0: nobody
/// says how many. CUDA forgets the refusal: what is asked for next may be smaller.
[[noreturn]] void fail_out_of_memory(const char* call, std::size_t bytes = 0);

/// Throws Error naming the call and CUDA's reason: memory where the device has not so much, else
/// runtime.
inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorMemoryAllocation) fail_out_of_memory(call);
  throw Error(ErrorKind::runtime, std::string("cuda: ") + call + ": " + cudaGetErrorString(error));
}

}  // namespace hyb::kernels::cuda
