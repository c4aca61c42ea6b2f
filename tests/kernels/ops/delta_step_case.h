#pragma once

#include "kernels/ops/recurrent_step.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

struct DeltaStepCase {
  std::int64_t key_heads, value_heads, rows, columns, taps;
  DType dtype, state;
  std::vector<std::int32_t> read, write;

  std::int64_t tokens() const { return static_cast<std::int64_t>(read.size()); }
  std::int64_t inner() const { return value_heads * columns; }
  std::int64_t channels() const { return 2 * key_heads * rows + inner(); }
};
inline constexpr std::int64_t delta_step_slots = 6;

/// All tensors of one step, on the host.
struct DeltaStepInputs {
  explicit DeltaStepInputs(const DeltaStepCase& c)
      : x(random_tensor(c.dtype, {c.tokens(), c.channels()}, 1, 1.0F, {7, 1})),
        b(random_tensor(c.dtype, {c.tokens(), c.value_heads}, 2, 1.0F, {2, 1})),
        a(random_tensor(c.dtype, {c.tokens(), c.value_heads}, 3, 1.0F, {2, 1})),
        conv_weight(random_tensor(DType::f32, {c.channels(), c.taps}, 4, 0.5F)),
        conv_bias(random_tensor(DType::f32, {c.channels()}, 5, 0.5F)),
        windows(
            random_tensor(c.dtype, {delta_step_slots, c.channels(), c.taps - 1}, 6, 1.0F, {3, 1})),
        a_log(random_tensor(DType::f32, {c.value_heads}, 7)),
        dt_bias(random_tensor(DType::f32, {c.value_heads}, 8)),
        state(random_tensor(c.state, {delta_step_slots, c.value_heads, c.rows, c.columns}, 9, 1.0F,
                            {4, 0})),
        y(c.dtype, {c.tokens(), c.inner()}, {3, 1}),
        convolved(c.dtype, {c.tokens(), c.channels()}) {}

  TestTensor x, b, a, conv_weight, conv_bias, windows, a_log, dt_bias, state, y, convolved;
};

}  // namespace hyb::kernels::testing
