#pragma once

#include <cstddef>

#include "core/base/dtype.h"
#include "kernels/buffer.h"
#include "kernels/queue.h"

namespace hyb::kernels {

/// These measure what the machine can do at this moment, on the queue's threads and instruction set
/// or its card: the limits that a benchmark compares its figures with. Other programs slow probes
/// down too: run them between the measurements and keep the best.

/// Reads a buffer that no last-level cache holds; on a card, copies one half of it to the other.
class ReadProbe {
 public:
  /// Takes `bytes` of memory and touches all of it. Throws Error(memory).
  explicit ReadProbe(Queue& queue, std::size_t bytes = std::size_t{1} << 30);

  /// Bytes per second of one pass over the buffer by all threads; on a card of some passes, those
  /// read and those written.
  double bytes_per_s();

 private:
  Queue* queue_;
  Buffer buffer_;
};

/// Operations per second (a multiplication and an addition are two) of a loop of dot products that
/// touches registers only, for products of `dtype` (bf16 or f32) as linear computes them, over
/// about 50 ms on all threads. On a card: of the largest square product by linear that does not
/// take much longer.
double flops_per_s(Queue& queue, DType dtype);

}  // namespace hyb::kernels
