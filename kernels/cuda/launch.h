#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels::cuda {

/// Throws Error(memory): `call` was refused `bytes` bytes, and what the card has left. 0: not
/// known. CUDA's sticky error is cleared: the next request may be smaller.
[[noreturn]] void fail_out_of_memory(const char* call, std::size_t bytes = 0);

/// Throws Error naming the call and CUDA's reason: memory where the device has not enough, else
/// runtime.
inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorMemoryAllocation) fail_out_of_memory(call);
  throw Error(ErrorKind::runtime, std::string("cuda: ") + call + ": " + cudaGetErrorString(error));
}

struct LaunchShape {
  dim3 blocks;
  unsigned threads = 0;          ///< of a block
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
  /// The kernel does not keep the rules of wait_for_previous_kernel; others start early where the
  /// card can do that.
  bool waits = false;
};

/// Opens all of a block's shared memory to `kernel` (beyond 48 KB, static and dynamic together, the
/// device asks for that), once for all of its launches: recorded ones keep what they were recorded
/// with.
template <typename Params>
LoadedKernel load(Stream& stream, void (*kernel)(Params)) {
  cudaFuncAttributes attributes = {};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  check(cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(stream.shared_bytes_max() - attributes.sharedSizeBytes)),
        "cudaFuncSetAttribute");
  if (const auto percent = stream.carveout()) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, *percent),
          "cudaFuncSetAttribute");
  }
  // Code made for older cards has no instruction that waits for the previous kernel (ptx.h).
  return {.can_start_early = stream.can_start_early() && attributes.ptxVersion >= 90};
}

/// The only way to start a kernel. Throws Error(runtime) where the device refuses the shape.
template <typename Params>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Params),
            const Params& params) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  const LoadedKernel* loaded = stream.find_loaded(address);
  if (loaded == nullptr) loaded = &stream.add_loaded(address, load(stream, kernel));
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.handle();
  config.attrs = &early;
  config.numAttrs = !shape.waits && loaded->can_start_early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, params), "cudaLaunchKernelEx");
}

/// Returns how many pieces of `size` cover `count`, as a grid's dimension.
inline unsigned pieces(std::int64_t count, std::int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace hyb::kernels::cuda
