#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// Gated values are kept here until the norm is known; those of a wider slice past it are computed
/// twice.
constexpr std::int64_t waiting_max = 8192;

[[gnu::always_inline]] inline Vec inverse_root(Vec squares, std::int64_t width, float eps) {
  const float mean = sum_of(squares) / static_cast<float>(width) + eps;
  return broadcast(1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
}

template <bool Sigmoid, typename T>
void norm_then_gate(const T* x, const T* gate, const float* weight, T* y, std::int64_t width,
                    float eps) {
  Vec squares = zeros();
  each_vector(width, [&](std::int64_t i, auto part) {
    const Vec u = load(x + i, part);
    squares = fma(u, u, squares);
  });
  const Vec scale = inverse_root(squares, width, eps);
  each_vector(width, [&](std::int64_t i, auto part) {
    const Vec normed = load(x + i, part) * scale * load(weight + i, part);
    const Vec z = load(gate + i, part);
    store(y + i, normed * (Sigmoid ? sigmoid(z) : silu(z)), part);
  });
}

template <typename T>
void gate_then_norm(const T* x, const T* gate, const float* weight, T* y, std::int64_t width,
                    float eps) {
  alignas(64) float waiting[waiting_max];
  const auto gated = [&](std::int64_t i, auto part) {
    return load(x + i, part) * silu(load(gate + i, part));
  };
  const std::int64_t kept = width < waiting_max ? width / lanes * lanes : waiting_max;
  Vec squares = zeros();
  each_vector(width, [&](std::int64_t i, auto part) {
    const Vec u = gated(i, part);  // lanes beyond the slice: 0 * silu(0) = 0
    if (i < kept) store(waiting + i, u);
    squares = fma(u, u, squares);
  });
  const Vec scale = inverse_root(squares, width, eps);
  each_vector(width, [&](std::int64_t i, auto part) {
    const Vec u = i < kept ? load(waiting + i) : gated(i, part);
    store(y + i, u * scale * load(weight + i, part), part);
  });
}

template <typename T>
void norm_rows(const GatedNormRows<T>& job) {
  const auto norm_slice = job.sigmoid_gate ? norm_then_gate<true, T>
                          : job.norm_first ? norm_then_gate<false, T>
                                           : gate_then_norm<T>;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    for (std::int64_t slice = 0; slice < job.slices; ++slice) {
      const std::int64_t at = slice * job.width;
      norm_slice(job.x + row * job.x_stride + at, job.gate + row * job.gate_stride + at,
                 job.weight + at, job.y + row * job.y_stride + at, job.width, job.eps);
    }
  }
}

}  // namespace

template <typename T>
struct VectorRoute<vector_isa, GatedNormRows<T>> {
  static void run(const GatedNormRows<T>& job) { norm_rows(job); }
};
template struct VectorRoute<vector_isa, GatedNormRows<float>>;
template struct VectorRoute<vector_isa, GatedNormRows<bf16>>;

}  // namespace hyb::kernels
