#pragma once

#include <cmath>
#include <vector>

#include "kernels/ops/s6.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

struct S6Shape {
  std::int64_t tokens, channels, columns;
};

/// All tensors of calls of s6, on the host. Rows of b and c are in one matrix, b first.
struct S6Inputs {
  S6Inputs(DType dtype, S6Shape shape, std::int64_t slots, DType state_dtype = DType::f32,
           Strides state_strides = {13, 1})
      : s(shape),
        x(random_tensor(dtype, {s.tokens, s.channels}, 1, 1.0F, {5, 1})),
        dt(random_tensor(dtype, {s.tokens, s.channels}, 2, 2.0F, {9, 1})),
        bc(random_tensor(dtype, {s.tokens, 2 * s.columns}, 3, 1.0F, {7, 1})),
        rate(random_tensor(DType::f32, {s.channels, s.columns}, 4, 1.0F)),
        d(random_tensor(DType::f32, {s.channels}, 5, 1.0F)),
        dt_bias(random_tensor(DType::f32, {s.channels}, 6, 1.0F)),
        state(
            random_tensor(state_dtype, {slots, s.channels, 1, s.columns}, 7, 1.0F, state_strides)),
        y(dtype, {s.tokens, s.channels}, {3, 1}) {
    for (std::int64_t i = 0; i < rate.size(); ++i) rate.set(i, -0.05F - std::fabs(rate.get(i)));
  }

  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) {
    const std::int64_t tokens = begin.values().back();
    selective_scan(queue, {.x = x.view().rows(first, tokens),
                           .dt = dt.view().rows(first, tokens),
                           .b = bc.view().rows(first, tokens).columns(0, s.columns),
                           .c = bc.view().rows(first, tokens).columns(s.columns, s.columns),
                           .rate = rate,
                           .d = d,
                           .dt_bias = dt_bias,
                           .state = state,
                           .span_begin = begin,
                           .read_slot = read,
                           .write_slot = write,
                           .y = y.view().rows(first, tokens),
                           .token_by_token = token_by_token});
  }

  S6Shape s;
  TestTensor x, dt, bc, rate, d, dt_bias, state, y;
  bool token_by_token = true;
};

/// The recurrence in doubles over all tokens, from and to `state`.
inline std::vector<double> recur(const S6Inputs& f, std::vector<double>& state) {
  const S6Shape& s = f.s;
  std::vector<double> y;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const double raw = static_cast<double>(f.dt.get(t * s.channels + c)) + f.dt_bias.get(c);
      const double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      const double x = f.x.get(t * s.channels + c);
      double sum = f.d.get(c) * x;
      for (std::int64_t n = 0; n < s.columns; ++n) {
        double& cell = state[static_cast<std::size_t>(c * s.columns + n)];
        const std::int64_t b = 2 * t * s.columns + n;
        cell = std::exp(dt * f.rate.get(c * s.columns + n)) * cell + dt * x * f.bc.get(b);
        if (f.state.view().dtype == DType::bf16) {
          cell = to_float(to_bf16(static_cast<float>(cell)));
        }
        sum += cell * f.bc.get(b + s.columns);
      }
      y.push_back(sum);
    }
  }
  return y;
}

}  // namespace hyb::kernels::testing
