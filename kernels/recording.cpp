#include "kernels/recording.h"

#include "core/base/error.h"
#include "kernels/cuda/recorded.h"

namespace hyb::kernels {

std::unique_ptr<Recording> record(Queue& queue, const std::function<void()>& body) {
  require(queue.device() == Device::cuda, "recording: of a queue on a card");
  if constexpr (has_cuda) return cuda::record(queue.stream(), body);
  return nullptr;
}

}  // namespace hyb::kernels
