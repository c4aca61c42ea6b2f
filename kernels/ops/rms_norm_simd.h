#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// Two running sums of squares, then their lanes: one order for every row of a width.
template <typename T>
Vec inverse_norm(const T* x, std::int64_t width, float eps) {
  Vec even = zeros(), odd = zeros();
  std::int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    const Vec a = load(x + i), b = load(x + i + lanes);
    even = fma(a, a, even);
    odd = fma(b, b, odd);
  }
  each_vector(width - i, [&](std::int64_t j, auto part) {
    const Vec a = load(x + i + j, part);
    even = fma(a, a, even);
  });
  const float mean = sum_of(even + odd) / static_cast<float>(width) + eps;
  return broadcast(1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
}

template <typename T>
void norm_rows(const RmsNormRows<T>& job) {
  const Vec offset = broadcast(job.weight_offset);
  const Vec factor = broadcast(job.factor);
  for (std::int64_t row = 0; row < job.rows; ++row) {
    for (std::int64_t slice = 0; slice < job.slices; ++slice) {
      const T* const x = job.x + row * job.x_stride + slice * job.width;
      T* const y = job.y + row * job.y_stride + slice * job.width;
      const Vec scale = inverse_norm(x, job.width, job.eps);
      each_vector(job.width, [&](std::int64_t i, auto part) {
        const Vec weight = job.weight == nullptr ? offset : offset + load(job.weight + i, part);
        const Vec normed = load(x + i, part) * scale * weight;
        if (!job.add) return store(y + i, normed, part);
        const Vec sum = load(y + i, part) + as_stored<T>(normed);
        store(y + i, job.factor == 1.0F ? sum : as_stored<T>(sum) * factor, part);
      });
    }
  }
}

}  // namespace

template <typename T>
struct VectorRoute<vector_isa, RmsNormRows<T>> {
  static void run(const RmsNormRows<T>& job) { norm_rows(job); }
};
template struct VectorRoute<vector_isa, RmsNormRows<float>>;
template struct VectorRoute<vector_isa, RmsNormRows<bf16>>;

}  // namespace hyb::kernels
