#pragma once

#include <cstdint>

#include "kernels/queue.h"

namespace hyb::kernels {

/// Elements that one thread works off faster than a second one is called (about 1 us).
inline constexpr std::int64_t elements_alone = 8192;

/// Calls body(begin, end) for contiguous parts of 0..count-1, on all threads when there is enough
/// to do: an item is worth `elements`, and parts are cut at multiples of `grain`.
template <typename Body>
void share(Queue& queue, std::int64_t count, std::int64_t grain, std::int64_t elements,
           Body&& body) {
  if (count == 0) return;
  auto part = [&](int thread, int threads) {
    const Slice slice = slice_of(count, grain, thread, threads);
    if (slice.begin < slice.end) body(slice.begin, slice.end);
  };
  if (count * elements <= elements_alone || count <= grain) {
    queue.alone(part);
  } else {
    queue.parallel(part);
  }
}

}  // namespace hyb::kernels
