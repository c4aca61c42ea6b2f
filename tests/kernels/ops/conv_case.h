#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <span>
#include <type_traits>

#include "kernels/ops/conv.h"
#include "tests/kernels/ops/chain_case.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

inline void run(Queue& queue, const CausalConv& op) { causal_conv(queue, op); }
inline void run(Queue& queue, const GatedConv& op) { gated_conv(queue, op); }

/// Values of a row of x for every channel.
template <typename Op>
inline constexpr std::int64_t conv_inputs = std::is_same_v<Op, GatedConv> ? 3 : 1;

struct ConvShape {
  std::int64_t tokens, channels, width;
  bool has_bias = true;
};

/// The tensors of a step of CausalConv or GatedConv.
template <typename Op>
struct ConvInputs {
  ConvInputs(DType dtype, ConvShape shape, std::int64_t slots, Strides strides = {7, 1},
             Strides weight_strides = {0, 1})
      : s(shape),
        x(random_tensor(dtype, {s.tokens, conv_inputs<Op> * s.channels}, 1, 1.0F, strides)),
        weight(random_tensor(DType::f32, {s.channels, s.width}, 2, 0.7F, weight_strides)),
        bias(random_tensor(DType::f32, {s.channels}, 3, 0.5F, weight_strides)),
        windows(random_tensor(dtype, {slots, s.channels, s.width - 1}, 4, 1.0F, strides)),
        y(dtype, {s.tokens, s.channels}, strides) {}

  /// Tokens `first` and on, as many as the spans have.
  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) const {
    const std::int64_t tokens = begin.values().back();
    testing::run(queue, Op{.x = x.view().rows(first, tokens),
                           .weight = weight,
                           .bias = s.has_bias ? Tensor(bias) : Tensor(),
                           .windows = windows,
                           .span_begin = begin,
                           .read_slot = read,
                           .write_slot = write,
                           .y = y.view().rows(first, tokens)});
  }

  ConvShape s;
  TestTensor x, weight, bias, windows, y;
};

/// One span of every shape on every route, from slot 1 to slot 2. input_of(inputs, t, c) is what
/// enters the convolution; check_y(inputs, t, c, sum, size) judges an answer by the sum in doubles
/// and the sum of its terms' sizes.
template <typename Op, typename InputOf, typename CheckY>
void check_definition(std::span<const ConvShape> shapes, InputOf&& input_of, CheckY&& check_y) {
  for (const Isa isa : available_isas()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const ConvShape& s : shapes) {
        CAPTURE(name_of(isa));
        CAPTURE(s.channels);
        Queue queue = test_queue(isa, 2);
        const ConvInputs<Op> in(dtype, s, 3);
        const auto windows = in.windows.values();
        const auto x = in.x.everything();
        in.run(queue, {0, static_cast<std::int32_t>(s.tokens)}, {1}, {2});
        CHECK(in.y.guards_intact());
        CHECK(in.windows.guards_intact());
        CHECK(in.x.everything() == x);
        const std::int64_t history = s.width - 1;
        const auto input = [&](std::int64_t t, std::int64_t c) -> double {
          if (t >= 0) return input_of(in, t, c);
          return windows[static_cast<std::size_t>((s.channels + c) * history + history + t)];
        };
        for (std::int64_t c = 0; c < s.channels; ++c) {
          for (std::int64_t t = 0; t < s.tokens; ++t) {
            double sum = s.has_bias ? in.bias.get(c) : 0.0, size = std::fabs(sum);
            for (std::int64_t j = 0; j < s.width; ++j) {
              const double term = in.weight.get(c * s.width + j) * input(t - history + j, c);
              sum += term;
              size += std::fabs(term);
            }
            check_y(in, t, c, sum, size);
          }
          for (std::int64_t j = 0; j < history; ++j) {
            REQUIRE(in.windows.get((2 * s.channels + c) * history + j) ==
                    static_cast<float>(input(s.tokens - history + j, c)));
          }
        }
      }
    }
  }
}

/// Cutting a sequence anywhere changes neither output nor window, on any threads.
template <typename Op>
void check_cuts() {
  std::mt19937 engine(5);
  for (const Isa isa : available_isas()) {
    for (const std::int64_t width : {2, 3, 4}) {
      const ConvShape s{29, 150, width};
      Queue one = test_queue(isa, 1);
      const ConvInputs<Op> whole(DType::bf16, s, 2);
      whole.run(one, {0, 29}, {1}, {1});
      for (int round = 0; round < 12; ++round) {
        Queue queue = test_queue(isa, 1 + round % 3);
        const ConvInputs<Op> cut(DType::bf16, s, 2);
        const auto cuts = random_cuts(29, engine);
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
          cut.run(queue, {0, cuts[i + 1] - cuts[i]}, {1}, {1}, cuts[i]);
        }
        CHECK(same_bytes(cut.y, whole.y));
        CHECK(same_bytes(cut.windows, whole.windows));
      }
    }
  }
}

/// Chains cut anywhere, into single tokens, too.
template <typename Op>
void check_chains() {
  std::mt19937 engine(9);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t width : {2, 3, 4}) {
      for (int round = 0; round < 10; ++round) {
        const ChainedSpans spans = round == 0   ? chained({0, 1, 2, 3, 4, 5, 6}, true, false)
                                   : round == 1 ? chained({0, 1, 2, 4, 5, 8, 9}, false, true)
                                                : random_chain(29, engine);
        const ConvShape shape{spans.begins.back(), 150, width};
        check_chain(
            spans, 1 + round % 3,
            [&] { return ConvInputs<Op>(dtype, shape, std::max(spans.slots(), 4)); },
            [](const ConvInputs<Op>& in, Queue& queue, const Table& begins, const Table& read,
               const Table& write,
               std::int32_t first) { in.run(queue, begins, read, write, first); },
            [](const ConvInputs<Op>& in) -> const TestTensor& { return in.windows; });
      }
    }
  }
}

/// Spans that leave no window.
template <typename Op>
void check_windows_discarded() {
  std::mt19937 engine(13);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t width : {2, 3, 4}) {
      for (int round = 0; round < 3; ++round) {
        const DiscardedSpans spans = random_discarded(engine);
        const ConvShape shape{spans.kept.begins.back(), 150, width};
        check_discarded(
            spans, 1 + round, [&] { return ConvInputs<Op>(dtype, shape, DiscardedSpans::slots); },
            [](const ConvInputs<Op>& in, Queue& queue, const Table& begins, const Table& read,
               const Table& write,
               std::int32_t first) { in.run(queue, begins, read, write, first); },
            [](const ConvInputs<Op>& in) -> const TestTensor& { return in.windows; });
      }
    }
  }
}

}  // namespace hyb::kernels::testing
