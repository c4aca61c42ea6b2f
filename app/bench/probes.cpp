#include "app/bench/probes.h"

#include <algorithm>

namespace hyb::app {

Probes::Probes(kernels::Queue& queue, DType dtype, bool has_room) : queue_(&queue), dtype_(dtype) {
  if (has_room) reader_.emplace(queue, read_bytes);
}

void Probes::run() {
  if (reader_) best_.bytes_per_s = std::max(best_.bytes_per_s, reader_->bytes_per_s());
  best_.flops_per_s = std::max(best_.flops_per_s, kernels::flops_per_s(*queue_, dtype_));
}

}  // namespace hyb::app
