#include "kernels/side_copies.h"

#include "kernels/cuda/side_copies.h"

namespace hyb::kernels {

std::unique_ptr<SideCopies> make_side_copies(Queue& queue, std::size_t bytes) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda && bytes > 0) {
      return cuda::make_side_copies(queue.stream(), bytes);
    }
  }
  return nullptr;
}

StagedBytes side_copy_bytes(Device device, std::size_t bytes) {
  if (device == Device::cpu) return {};
  return {.device = bytes, .pinned = bytes};
}

}  // namespace hyb::kernels
