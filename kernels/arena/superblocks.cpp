#include "kernels/arena/superblocks.h"

#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/arena/host_superblocks.h"
#include "kernels/cuda/driver.h"

namespace hyb::kernels {

std::unique_ptr<SuperblockMap> make_superblocks(Device device, const SuperblockShape& shape,
                                                const SuperblockMapOptions& options) {
  if (device == Device::cpu) return make_host_superblocks(shape, options);
  if constexpr (has_cuda) {
    auto arena = std::make_unique<CudaArena>(cuda::driver(), 0, SuperblockMap::handle_bytes(shape));
    return std::make_unique<SuperblockMap>(std::move(arena), shape, options);
  }
  throw Error(ErrorKind::usage, "memory: this build has no CUDA; use --device cpu");
}

}  // namespace hyb::kernels
