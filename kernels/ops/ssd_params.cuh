#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/softplus.h"
#include "kernels/ops/ssd.h"

namespace hyb::kernels::cuda {

/// What every kernel of ssd is told. T is the type of activations, S of the state.
template <typename T, typename S>
struct SsdParams {
  const T *x, *dt;
  const float *a_log, *d, *dt_bias;
  S* state;
  T* y;
  const std::int32_t *span_begin, *read_slot, *write_slot;
  std::int64_t x_stride, dt_stride, y_stride, state_stride;
  int heads, rows, columns, groups;
  float dt_min, dt_max;

  /// Where B of a head's group begins in a row of x; C lies groups * columns behind.
  __device__ std::int64_t b_of(int head) const {
    return static_cast<std::int64_t>(heads) * rows + head / (heads / groups) * columns;
  }
  __device__ std::int64_t c_of(int head) const {
    return b_of(head) + static_cast<std::int64_t>(groups) * columns;
  }
};

/// dt from what the model computes for it: softplus, clamped; NaN stays NaN.
__device__ __forceinline__ float step_size(float raw, float dt_min, float dt_max) {
  const float soft = softplus(raw);
  return soft < dt_min ? dt_min : soft > dt_max ? dt_max : soft;
}
/// What a step of dt leaves of the old state.
__device__ __forceinline__ float step_decay(float dt, float a_log) {
  return expf(dt * -expf(a_log));
}

template <typename T, typename S>
SsdParams<T, S> ssd_params(const Ssd& op) {
  return {.x = op.x.as<T>(),
          .dt = op.dt.as<T>(),
          .a_log = op.a_log.as<float>(),
          .d = op.d.as<float>(),
          .dt_bias = op.dt_bias.as<float>(),
          .state = op.state.as<S>(),
          .y = op.y.as<T>(),
          .span_begin = op.span_begin.as<std::int32_t>(),
          .read_slot = op.read_slot.as<std::int32_t>(),
          .write_slot = op.write_slot.as<std::int32_t>(),
          .x_stride = op.x.row_stride,
          .dt_stride = op.dt.row_stride,
          .y_stride = op.y.row_stride,
          .state_stride = op.state.row_stride,
          .heads = static_cast<int>(op.state.dim(1)),
          .rows = static_cast<int>(op.state.dim(2)),
          .columns = static_cast<int>(op.state.dim(3)),
          .groups = static_cast<int>(op.groups),
          .dt_min = op.dt_min,
          .dt_max = op.dt_max};
}

}  // namespace hyb::kernels::cuda
