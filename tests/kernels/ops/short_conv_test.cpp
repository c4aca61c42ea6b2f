#include "kernels/ops/short_conv.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t tokens, channels, width;
};

/// The inputs of one step; x and y are column views in wider matrices.
struct Fixture {
  Fixture(DType dtype, Shape shape, std::int64_t slots)
      : s(shape),
        x(random_tensor(dtype, {s.tokens, 3 * s.channels}, 1, 1.0F, {7, 1})),
        weight(random_tensor(DType::f32, {s.channels, s.width}, 2, 0.7F, {0, 1})),
        bias(random_tensor(DType::f32, {s.channels}, 3, 0.5F, {0, 3})),
        windows(random_tensor(dtype, {slots, s.channels, s.width - 1}, 4, 1.0F, {11, 1})),
        y(dtype, {s.tokens, s.channels}, {3, 1}) {}

  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) {
    const std::int64_t tokens = begin.values().back();
    short_conv(queue, {.x = x.view().rows(first, tokens),
                       .weight = weight,
                       .bias = has_bias ? Tensor(bias) : Tensor(),
                       .windows = windows,
                       .span_begin = begin,
                       .read_slot = read,
                       .write_slot = write,
                       .y = y.view().rows(first, tokens)});
  }

  /// u of token t as the convolution sees it.
  float gated(std::int64_t t, std::int64_t c) const {
    const float before = x.get(t * 3 * s.channels + c);
    return rounded(before * x.get((t * 3 + 2) * s.channels + c));
  }
  float rounded(double value) const {
    const auto nearest = static_cast<float>(value);
    return y.view().dtype == DType::bf16 ? to_float(to_bf16(nearest)) : nearest;
  }

  Shape s;
  bool has_bias = true;
  TestTensor x, weight, bias, windows, y;
};

const Shape shapes[] = {{13, 5, 3}, {1, 100, 4}, {9, 65, 3}, {21, 300, 2}, {2, 1, 4}, {40, 257, 4}};

TEST_SUITE("kernels/ops/short_conv") {
  TEST_CASE("is the definition on every route, with and without a bias") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Shape& s : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(s.channels);
          Queue queue = test_queue(isa, 2);
          Fixture f(dtype, s, 3);
          f.has_bias = s.width != 3;
          const auto windows = f.windows.values();
          const auto inputs = f.x.everything();
          f.run(queue, {0, static_cast<std::int32_t>(s.tokens)}, {1}, {2});
          CHECK(f.y.guards_intact());
          CHECK(f.windows.guards_intact());
          CHECK(f.x.everything() == inputs);
          const std::int64_t history = s.width - 1;
          const auto input = [&](std::int64_t t, std::int64_t c) -> double {
            if (t >= 0) return f.gated(t, c);
            return windows[static_cast<std::size_t>((s.channels + c) * history + history + t)];
          };
          for (std::int64_t c = 0; c < s.channels; ++c) {
            for (std::int64_t t = 0; t < s.tokens; ++t) {
              double sum = f.has_bias ? f.bias.get(c) : 0.0, size = std::fabs(sum);
              for (std::int64_t j = 0; j < s.width; ++j) {
                const double term = f.weight.get(c * s.width + j) * input(t - history + j, c);
                sum += term;
                size += std::fabs(term);
              }
              const double gate = f.x.get((t * 3 + 1) * s.channels + c), want = gate * sum;
              // Two roundings, and a sum whose own error may tip the first of them.
              const double bound = dtype == DType::bf16 ? 0x1.02p-7 : 0x1p-22;
              REQUIRE(std::fabs(f.y.get(t * s.channels + c) - want) <=
                      bound * std::fabs(want) + std::fabs(gate) * size * 0x1p-21 + 1e-30);
            }
            for (std::int64_t j = 0; j < history; ++j) {
              REQUIRE(f.windows.get((2 * s.channels + c) * history + j) ==
                      static_cast<float>(input(s.tokens - history + j, c)));
            }
          }
        }
      }
    }
  }

  TEST_CASE("in bf16 the sum is rounded before it meets its gate") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      Fixture f(DType::bf16, {64, 48, 2}, 2);
      f.has_bias = false;
      for (std::int64_t c = 0; c < 48; ++c) {  // one tap: the sum is exact in f32
        f.weight.set(2 * c, 0.0F);
        f.weight.set(2 * c + 1, 1.0F + static_cast<float>(c) * 0x1p-10F);
      }
      f.run(queue, {0, 64}, {-1}, {0});
      for (std::int64_t i = 0; i < 64 * 48; ++i) {
        const std::int64_t t = i / 48, c = i % 48;
        const float sum = f.rounded(static_cast<double>(f.gated(t, c)) * f.weight.get(2 * c + 1));
        REQUIRE(f.y.get(i) == f.rounded(f.x.get((t * 3 + 1) * 48 + c) * sum));
      }
    }
  }

  TEST_CASE("cutting a sequence anywhere changes neither output nor window, on any threads") {
    std::mt19937 engine(5);
    for (const Isa isa : available_isas()) {
      for (const std::int64_t width : {2, 3, 4}) {
        const Shape s{29, 150, width};
        Queue one = test_queue(isa, 1);
        Fixture whole(DType::bf16, s, 2);
        whole.run(one, {0, 29}, {1}, {1});
        for (int round = 0; round < 12; ++round) {
          Queue queue = test_queue(isa, 1 + round % 3);
          Fixture cut(DType::bf16, s, 2);
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

  TEST_CASE(
      "permuting spans permutes outputs, only the named slots are written, and what is not a "
      "number stays in its span") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      const Shape s{12, 77, 3};
      Fixture a(DType::f32, s, 6), b(DType::f32, s, 6);
      for (std::int64_t i = 5 * 231; i < 6 * 231; ++i) a.x.set(i, NAN);  // the middle span
      a.run(queue, {0, 5, 6, 12}, {0, -1, 0}, {3, 1, 5});
      // The same three spans, last first: rows 6..11, 0..4, 5.
      for (std::int64_t i = 0; i < 6 * 231; ++i) {
        b.x.set(i, a.x.get(6 * 231 + i));
        b.x.set(6 * 231 + i, i < 5 * 231 ? a.x.get(i) : 1.0F);
      }
      b.run(queue, {0, 6, 11, 12}, {0, 0, -1}, {5, 3, 1});
      for (std::int64_t i = 0; i < 6 * 77; ++i) {
        REQUIRE(a.y.get(6 * 77 + i) == b.y.get(i));
        if (i < 5 * 77) REQUIRE(a.y.get(i) == b.y.get(6 * 77 + i));
        if (i >= 5 * 77) REQUIRE(std::isnan(a.y.get(i)));
      }
      const Fixture untouched(DType::f32, s, 6);
      for (const std::int64_t slot : {0, 2, 3, 4, 5}) {
        const Fixture& expected = slot == 3 || slot == 5 ? b : untouched;
        for (std::int64_t i = slot * 77 * 2; i < (slot + 1) * 77 * 2; ++i) {
          REQUIRE(a.windows.get(i) == expected.windows.get(i));
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    Fixture f(DType::f32, {4, 8, 3}, 2);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {0}, {2}), "short_conv: write_slot is a slot, got 2",
                         Error);
    f.x = TestTensor(DType::f32, {4, 16});
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {0}, {0}),
                         "short_conv: x needs 24 in dimension 1, got 16", Error);
    Fixture wide(DType::f32, {4, 8, 5}, 2);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 4}, {0}, {0}), "short_conv: K is 2, 3 or 4, got 5",
                         Error);
  }
}

}  // namespace
