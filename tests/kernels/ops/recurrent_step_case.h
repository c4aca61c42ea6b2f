#pragma once

#include "kernels/ops/recurrent_step.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

/// Slots of a test's windows and states.
inline constexpr std::int64_t step_slots = 6;

/// A step's convolution, which has the slots of the recurrence after it.
inline CausalConv step_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                   const Tensor& windows, const Tensor& y) {
  return {.x = x,
          .weight = weight,
          .bias = bias,
          .windows = windows,
          .span_begin = {},
          .read_slot = {},
          .write_slot = {},
          .y = y};
}

/// A step of delta_step; a row is one token of a sequence.
struct DeltaStepCase {
  std::int32_t key_heads = 1;
  std::int64_t value_heads = 1, rows = 128, columns = 128, taps = 4;
  DType dtype = DType::bf16, state = DType::f32;
  bool tiled = false;
  std::vector<std::int32_t> read, write;
  bool per_channel = false;  ///< decays

  std::int64_t tokens() const { return static_cast<std::int64_t>(read.size()); }
  std::int64_t decays() const { return per_channel ? value_heads * rows : value_heads; }
  std::int64_t inner() const { return value_heads * columns; }
  std::int64_t channels() const { return 2 * key_heads * rows + inner(); }
};

/// All tensors of one step, on the host.
struct DeltaStepInputs {
  explicit DeltaStepInputs(const DeltaStepCase& c)
      : x(random_tensor(c.dtype, {c.tokens(), c.channels()}, 1, 1.0F, {7, 1})),
        b(random_tensor(c.dtype, {c.tokens(), c.value_heads}, 2, 1.0F, {2, 1})),
        a(random_tensor(c.dtype, {c.tokens(), c.decays()}, 3, 1.0F, {2, 1})),
        conv_weight(random_tensor(DType::f32, {c.channels(), c.taps}, 4, 0.5F)),
        conv_bias(random_tensor(DType::f32, {c.channels()}, 5, 0.5F)),
        windows(random_tensor(c.dtype, {step_slots, c.channels(), c.taps - 1}, 6, 1.0F, {3, 1})),
        rate(random_rates(c.value_heads, 7)),
        dt_bias(random_tensor(DType::f32, {c.decays()}, 8)),
        state(random_tensor(c.state, {step_slots, c.value_heads, c.rows, c.columns}, 9, 1.0F,
                            {4, 0})),
        y(c.dtype, {c.tokens(), c.inner()}, {3, 1}),
        convolved(c.dtype, {c.tokens(), c.channels()}) {}

  DeltaStep op(const Table& read, const Table& write, const Table& semaphores,
               std::int32_t key_heads, bool tiled) const {
    return {.convolution = step_convolution(x, conv_weight, conv_bias, windows, convolved),
            .recurrence = {.x = convolved,
                           .b = b,
                           .a = a,
                           .rate = rate,
                           .dt_bias = dt_bias,
                           .state = state,
                           .span_begin = {},
                           .read_slot = read,
                           .write_slot = write,
                           .y = y,
                           .shape = {.key_heads = key_heads, .tiled = tiled}},
            .semaphores = semaphores};
  }

  TestTensor x, b, a, conv_weight, conv_bias, windows, rate, dt_bias, state, y, convolved;
};

/// The same for mamba_step.
struct MambaStepCase {
  std::int64_t heads = 2, rows = 80, columns = 128;
  std::int32_t groups = 1;
  std::int64_t taps = 4;
  DType dtype = DType::bf16, state = DType::f32;
  std::vector<std::int32_t> read, write;

  std::int64_t tokens() const { return static_cast<std::int64_t>(read.size()); }
  std::int64_t inner() const { return heads * rows; }
  std::int64_t channels() const { return inner() + 2 * groups * columns; }
};

struct MambaStepInputs {
  explicit MambaStepInputs(const MambaStepCase& of)
      : c(of),
        x(random_tensor(c.dtype, {c.tokens(), c.channels()}, 1, 1.0F, {7, 1})),
        dt(random_tensor(c.dtype, {c.tokens(), c.heads}, 3, 1.0F, {2, 1})),
        conv_weight(random_tensor(DType::f32, {c.channels(), c.taps}, 4, 0.5F)),
        conv_bias(random_tensor(DType::f32, {c.channels()}, 5, 0.5F)),
        windows(random_tensor(c.dtype, {step_slots, c.channels(), c.taps - 1}, 6, 1.0F, {3, 1})),
        rate(random_rates(c.heads, 7)),
        d(random_tensor(DType::f32, {c.heads}, 8)),
        dt_bias(random_tensor(DType::f32, {c.heads}, 9)),
        state(random_tensor(c.state, {step_slots, c.heads, c.rows, c.columns}, 10, 1.0F, {5, 1})),
        y(c.dtype, {c.tokens(), c.inner()}, {3, 1}),
        convolved(c.dtype, {c.tokens(), c.channels()}) {}

  MambaStep op(const Table& read, const Table& write, const Table& semaphores) const {
    return {.convolution = step_convolution(x, conv_weight, conv_bias, windows, convolved),
            .recurrence = {.x = convolved,
                           .dt = dt,
                           .rate = rate,
                           .d = d,
                           .dt_bias = dt_bias,
                           .state = state,
                           .span_begin = {},
                           .read_slot = read,
                           .write_slot = write,
                           .y = y,
                           .shape = {.groups = c.groups, .dt_min = 0.01F, .dt_max = 4.0F}},
            .semaphores = semaphores};
  }

  MambaStepCase c;
  TestTensor x, dt, conv_weight, conv_bias, windows, rate, d, dt_bias, state, y, convolved;
};

}  // namespace hyb::kernels::testing
