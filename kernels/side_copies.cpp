#include "kernels/side_copies.h"

#include "kernels/cuda/side_copies.h"

namespace hyb::kernels {

std::unique_ptr<SideCopies> make_side_copies(Queue& queue, const SideCopyRoom& room) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda && room.out + room.back > 0) {
      return cuda::make_side_copies(queue.stream(), room);
    }
  }
  return nullptr;
}

StagedBytes side_copy_bytes(Device device, const SideCopyRoom& room) {
  if (device == Device::cpu) return {};
  return {.device = room.out, .pinned = room.out + room.back};
}

}  // namespace hyb::kernels
