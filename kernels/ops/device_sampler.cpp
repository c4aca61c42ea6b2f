#include "kernels/ops/device_sampler.h"

#include "core/base/error.h"
#include "kernels/cuda/recorded.h"

namespace hyb::kernels {

std::unique_ptr<DeviceSampler> make_device_sampler(Queue& queue, std::int64_t rows_max) {
  require(queue.device() == Device::cuda, "device sampler: of a queue on a card");
  if constexpr (has_cuda) return cuda::make_device_sampler(queue.stream(), rows_max);
  return nullptr;
}

StagedBytes device_sampler_bytes(Device device, std::int64_t rows_max) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) return cuda::device_sampler_bytes(rows_max);
  }
  return {.device = 0, .pinned = 0};
}

}  // namespace hyb::kernels
