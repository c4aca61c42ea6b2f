#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/ops/delta_rule.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

struct DeltaSizes {
  std::int64_t tokens;
  std::int32_t key_heads;
  std::int64_t value_heads, rows, columns;
  bool tiled = false;
  float beta_scale = 1.0F;
  bool per_channel = false;
  float decay_floor = 0.0F;

  std::int64_t line() const { return 2 * key_heads * rows + value_heads * columns; }
  std::int64_t decays() const { return per_channel ? value_heads * rows : value_heads; }
  std::int64_t inner() const { return value_heads * columns; }
  std::int64_t slot_size() const { return value_heads * rows * columns; }
};

/// All tensors of calls of delta_rule, on the host. Rows of b and a are in one matrix, b first.
struct DeltaInputs {
  DeltaInputs(DType dtype, DeltaSizes shape, std::int64_t slots, DType state_dtype = DType::f32,
              Strides strides = {5, 1})
      : s(shape),
        x(random_tensor(dtype, {s.tokens, s.line()}, 1, 1.0F, strides)),
        ba(random_tensor(dtype, {s.tokens, s.value_heads + s.decays()}, 2, 1.5F, {7, 1})),
        rate(random_rates(s.value_heads, 3)),
        dt_bias(random_tensor(DType::f32, {s.decays()}, 4, 1.0F)),
        state(random_tensor(state_dtype, {slots, s.value_heads, s.rows, s.columns}, 5, 0.5F,
                            {strides.row_padding * 2, strides.offset})),
        y(dtype, {s.tokens, s.inner()}, strides) {}

  /// Tokens `first` and on, as many as the spans have.
  DeltaRule op(const Tensor& begin, const Tensor& read, const Tensor& write, std::int64_t first,
               std::int64_t tokens) const {
    const Tensor both = ba.view().rows(first, tokens);
    return {.x = x.view().rows(first, tokens),
            .b = both.columns(0, s.value_heads),
            .a = both.columns(s.value_heads, s.decays()),
            .rate = rate,
            .dt_bias = dt_bias,
            .state = state,
            .span_begin = begin,
            .read_slot = read,
            .write_slot = write,
            .y = y.view().rows(first, tokens),
            .token_by_token = true,
            .shape = {.key_heads = s.key_heads,
                      .tiled = s.tiled,
                      .beta_scale = s.beta_scale,
                      .per_channel = s.per_channel,
                      .decay_floor = s.decay_floor}};
  }
  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) const {
    delta_rule(queue, op(begin, read, write, first, begin.values().back()));
  }

  void set_all_b(float value) { set_half(0, s.value_heads, value); }
  void set_all_a(float value) { set_half(s.value_heads, s.decays(), value); }

  std::vector<double> state_of(std::int64_t slot) const {
    std::vector<double> values;
    for (std::int64_t i = 0; i < s.slot_size(); ++i) {
      values.push_back(state.get(slot * s.slot_size() + i));
    }
    return values;
  }

  DeltaSizes s;
  TestTensor x, ba, rate, dt_bias, state, y;

 private:
  void set_half(std::int64_t first, std::int64_t count, float value) {
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t i = 0; i < count; ++i) {
        ba.set(t * (s.value_heads + s.decays()) + first + i, value);
      }
    }
  }
};

/// The recurrence in doubles, step by step as it is written in the literature, from `state`, which
/// becomes the last one; the answers for all tokens.
inline std::vector<double> recur(const DeltaInputs& in, std::vector<double>& state) {
  const DeltaSizes& s = in.s;
  std::vector<double> y;
  const auto normalized = [&](std::int64_t at, double scale) {
    std::vector<double> values;
    double squares = 0;
    for (std::int64_t i = 0; i < s.rows; ++i) {
      values.push_back(in.x.get(at + i));
      squares += values.back() * values.back();
    }
    for (double& value : values) value *= scale / std::sqrt(squares + 1e-6);
    return values;
  };
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t h = 0; h < s.value_heads; ++h) {
      const std::int64_t key_head = s.tiled ? h % s.key_heads : h / (s.value_heads / s.key_heads);
      const std::int64_t q_at = t * s.line() + key_head * s.rows;
      const auto q = normalized(q_at, 1 / std::sqrt(static_cast<double>(s.rows)));
      const auto k = normalized(q_at + s.key_heads * s.rows, 1.0);
      const std::int64_t v_at = t * s.line() + 2 * s.key_heads * s.rows + h * s.columns;
      const std::int64_t ba_at = t * (s.value_heads + s.decays());
      const double beta = s.beta_scale / (1 + std::exp(-static_cast<double>(in.ba.get(ba_at + h))));
      const auto decay = [&](std::int64_t row) {
        const std::int64_t at = s.per_channel ? h * s.rows + row : h;
        const double raw = static_cast<double>(in.ba.get(ba_at + s.value_heads + at)) +
                           static_cast<double>(in.dt_bias.get(at));
        const double soft = raw > 20.0 ? raw : std::log1p(std::exp(raw));
        if (s.decay_floor == 0.0F) return std::exp(in.rate.get(h) * soft);
        return std::exp(s.decay_floor / (1 + std::exp(in.rate.get(h) * raw)));
      };
      for (std::int64_t j = 0; j < s.columns; ++j) {
        const auto cell = [&](std::int64_t i) -> double& {
          return state[static_cast<std::size_t>((h * s.rows + i) * s.columns + j)];
        };
        double memory = 0, answer = 0;
        for (std::int64_t i = 0; i < s.rows; ++i) cell(i) *= decay(i);
        for (std::int64_t i = 0; i < s.rows; ++i)
          memory += cell(i) * k[static_cast<std::size_t>(i)];
        const double delta = beta * (in.x.get(v_at + j) - memory);
        for (std::int64_t i = 0; i < s.rows; ++i) {
          cell(i) += k[static_cast<std::size_t>(i)] * delta;
          answer += cell(i) * q[static_cast<std::size_t>(i)];
          if (in.state.view().dtype == DType::bf16)
            cell(i) = to_float(to_bf16(static_cast<float>(cell(i))));
        }
        y.push_back(answer);
      }
    }
  }
  return y;
}

}  // namespace hyb::kernels::testing
