#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/softplus.h"
#include "kernels/ops/delta_rule.h"

namespace hyb::kernels::cuda {

/// What every kernel of delta_rule is told. T is the type of activations, S of the state.
template <typename T, typename S>
struct DeltaRuleParams {
  const T *x, *b, *a;
  const float *a_log, *dt_bias;
  S* state;
  T* y;
  const std::int32_t *span_begin, *read_slot, *write_slot;
  std::int64_t x_stride, b_stride, a_stride, y_stride, state_stride;
  int key_heads, heads, rows, columns;  ///< heads of values; Dk rows of Dv columns
  float q_scale;                        ///< Dk^-0.5

  /// Where the q of a head's key head begins in a row of x; k lies k_distance() behind.
  __host__ __device__ std::int64_t q_of(int head) const {
    return static_cast<std::int64_t>(head / (heads / key_heads)) * rows;
  }
  __host__ __device__ std::int64_t k_distance() const {
    return static_cast<std::int64_t>(key_heads) * rows;
  }
  __host__ __device__ std::int64_t v_of(int head) const {
    return 2 * k_distance() + static_cast<std::int64_t>(head) * columns;
  }
  /// Of a head in a slot.
  __host__ __device__ std::int64_t state_of(int head) const {
    return static_cast<std::int64_t>(head) * rows * columns;
  }
};

/// The logarithm of what a token leaves of the state: never above 0; NaN stays NaN.
__device__ __forceinline__ float log_keep(float a, float dt_bias, float a_log) {
  return -expf(a_log) * softplus(a + dt_bias);
}
__device__ __forceinline__ float write_strength(float b) { return 1.0F / (1.0F + expf(-b)); }

template <typename T, typename S>
DeltaRuleParams<T, S> delta_rule_params(const DeltaRule& op) {
  return {.x = op.x.as<T>(),
          .b = op.b.as<T>(),
          .a = op.a.as<T>(),
          .a_log = op.a_log.as<float>(),
          .dt_bias = op.dt_bias.as<float>(),
          .state = op.state.as<S>(),
          .y = op.y.as<T>(),
          .span_begin = op.span_begin.as<std::int32_t>(),
          .read_slot = op.read_slot.as<std::int32_t>(),
          .write_slot = op.write_slot.as<std::int32_t>(),
          .x_stride = op.x.row_stride,
          .b_stride = op.b.row_stride,
          .a_stride = op.a.row_stride,
          .y_stride = op.y.row_stride,
          .state_stride = op.state.row_stride,
          .key_heads = static_cast<int>(op.key_heads),
          .heads = static_cast<int>(op.state.dim(1)),
          .rows = static_cast<int>(op.state.dim(2)),
          .columns = static_cast<int>(op.state.dim(3)),
          .q_scale = 1.0F / std::sqrt(static_cast<float>(op.state.dim(2)))};
}

}  // namespace hyb::kernels::cuda
