#include "kernels/ops/recurrent_step.h"

#include <numeric>

namespace hyb::kernels {

SingleTokenSpans::SingleTokenSpans(const Check& check, const Tensor& read_slot,
                                   const Tensor& write_slot) {
  const auto* const reads = read_slot.as<std::int32_t>();
  const auto* const slots = write_slot.as<std::int32_t>();
  const std::int64_t rows = write_slot.dim(0);
  std::int64_t used = 0;
  for (; used < rows && slots[used] >= 0; ++used) {
    check.that(used == 0 || reads[used] != slots[used - 1],
               "no row goes on where the one before it ends", reads[used]);
  }
  for (std::int64_t row = used; row < rows; ++row) {
    check.that(slots[row] < 0, "rows without a slot stand last", slots[row]);
  }
  begins_.resize(static_cast<std::size_t>(used) + 1);
  std::iota(begins_.begin(), begins_.end(), 0);
}

}  // namespace hyb::kernels
