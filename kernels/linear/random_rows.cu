#include "kernels/linear/random_rows.h"

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int elements = 8;  // of a thread
constexpr int threads = 256;

template <typename T>
struct Params {
  RandomNumbers numbers;
  std::int64_t count;
  T* out;
};

/// A thread owns neighbouring elements.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(threads) random_kernel(const Params<T> p) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * elements;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (first >= p.count) return;
  float values[elements];
  for (int i = 0; i < elements; ++i) values[i] = p.numbers[first + i];
  const auto left = static_cast<int>(std::min<std::int64_t>(p.count - first, elements));
  if (Aligned && left == elements) {
    store_eight<Aligned>(p.out + first, left, values);
  } else {
    store_eight<false>(p.out + first, left, values);
  }
}

}  // namespace

void fill_random(Stream& stream, const RandomNumbers& numbers, std::int64_t count, DType dtype,
                 std::byte* out) {
  visit_float(dtype, [&]<typename T>(Tag<T>) {
    auto* const to = reinterpret_cast<T*>(out);
    launch(stream,
           {.blocks = dim3(pieces(count, std::int64_t{threads} * elements)),
            .threads = threads,
            .starts_early = true},
           is_vector_aligned(to, 0) ? random_kernel<T, true> : random_kernel<T, false>,
           Params<T>{.numbers = numbers, .count = count, .out = to});
  });
  stream.wait();  // kernels read weights before the previous ones have ended
}

}  // namespace hyb::kernels::cuda
