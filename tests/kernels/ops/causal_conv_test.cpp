#include "kernels/ops/causal_conv.h"

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
  Fixture(DType dtype, Shape s, std::int64_t slots)
      : x(random_tensor(dtype, {s.tokens, s.channels}, 1, 1.0F, {7, 1})),
        weight(random_tensor(DType::f32, {s.channels, s.width}, 2, 0.7F, {0, 1})),
        bias(random_tensor(DType::f32, {s.channels}, 3, 0.5F, {0, 3})),
        windows(random_tensor(dtype, {slots, s.channels, s.width - 1}, 4, 1.0F, {11, 1})),
        y(dtype, {s.tokens, s.channels}, {3, 1}) {}

  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) {
    const std::int64_t tokens = begin.values().back();
    causal_conv(queue, {.x = x.view().rows(first, tokens),
                        .weight = weight,
                        .bias = bias,
                        .windows = windows,
                        .span_begin = begin,
                        .read_slot = read,
                        .write_slot = write,
                        .y = y.view().rows(first, tokens)});
  }

  TestTensor x, weight, bias, windows, y;
};

const Shape shapes[] = {{13, 5, 4}, {1, 100, 4}, {9, 65, 3}, {21, 300, 2}, {2, 1, 4}, {40, 257, 4}};

TEST_SUITE("kernels/ops/causal_conv") {
  TEST_CASE("is the definition on every route, with and without a bias") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Shape& s : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(s.channels);
          Queue queue = test_queue(isa, 2);
          Fixture f(dtype, s, 3);
          const auto windows = f.windows.values();
          const auto inputs = f.x.everything();
          f.run(queue, {0, static_cast<std::int32_t>(s.tokens)}, {1}, {2});
          CHECK(f.y.guards_intact());
          CHECK(f.windows.guards_intact());
          CHECK(f.x.everything() == inputs);
          const std::int64_t history = s.width - 1;
          const auto input = [&](std::int64_t t, std::int64_t c) -> double {
            if (t >= 0) return f.x.get(t * s.channels + c);
            return windows[static_cast<std::size_t>((s.channels + c) * history + history + t)];
          };
          for (std::int64_t c = 0; c < s.channels; ++c) {
            for (std::int64_t t = 0; t < s.tokens; ++t) {
              double sum = f.bias.get(c);
              for (std::int64_t j = 0; j < s.width; ++j) {
                sum += f.weight.get(c * s.width + j) * input(t - history + j, c);
              }
              const double want = sum / (1.0 + std::exp(-sum));
              const double bound = dtype == DType::bf16 ? 0.0040 : 4e-6;
              REQUIRE(std::fabs(f.y.get(t * s.channels + c) - want) <=
                      bound * std::fabs(want) + 2e-6);
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

  TEST_CASE("a fresh sequence has zeros to its left, and no bias is a bias of zero") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      Fixture fresh(DType::bf16, {6, 70, 4}, 2), zeroed(DType::bf16, {6, 70, 4}, 2);
      for (std::int64_t i = 0; i < 70; ++i) zeroed.bias.set(i, 0.0F);
      for (std::int64_t i = 0; i < zeroed.windows.size(); ++i) zeroed.windows.set(i, 0.0F);
      zeroed.run(queue, {0, 6}, {0}, {1});
      const Table begin{0, 6}, read{-1}, write{1};
      causal_conv(queue, {.x = fresh.x,
                          .weight = fresh.weight,
                          .bias = {},
                          .windows = fresh.windows,
                          .span_begin = begin,
                          .read_slot = read,
                          .write_slot = write,
                          .y = fresh.y});
      CHECK(same_bytes(fresh.y, zeroed.y));
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

  TEST_CASE("permuting spans permutes outputs, and only the named slots are written") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      const Shape s{12, 77, 4};
      Fixture a(DType::f32, s, 6), b(DType::f32, s, 6);
      a.run(queue, {0, 5, 6, 12}, {0, -1, 0}, {3, 1, 5});
      // The same three spans, last first: rows 6..11, 0..4, 5.
      for (std::int64_t i = 0; i < 6 * 77; ++i) b.x.set(i, a.x.get(6 * 77 + i));
      for (std::int64_t i = 0; i < 6 * 77; ++i) b.x.set(6 * 77 + i, a.x.get(i));
      b.run(queue, {0, 6, 11, 12}, {0, 0, -1}, {5, 3, 1});
      CHECK(same_bytes(a.windows, b.windows));
      for (std::int64_t i = 0; i < 6 * 77; ++i) {
        REQUIRE(a.y.get(6 * 77 + i) == b.y.get(i));
        REQUIRE(a.y.get(i) == b.y.get(6 * 77 + i));
      }
      const Fixture untouched(DType::f32, s, 6);
      for (const std::int64_t slot : {0, 2, 4}) {
        for (std::int64_t i = slot * 77 * 3; i < (slot + 1) * 77 * 3; ++i) {
          REQUIRE(a.windows.get(i) == untouched.windows.get(i));
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    Fixture f(DType::f32, {4, 8, 4}, 2);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {0}, {2}), "causal_conv: write_slot is a slot, got 2",
                         Error);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {-2}, {0}),
                         "causal_conv: read_slot is a slot or -1, got -2", Error);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 2, 2, 4}, {0, 0, 0}, {0, 1, 0}),
                         "causal_conv: span_begin rises, got 2", Error);
    Fixture wide(DType::f32, {4, 8, 5}, 2);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 4}, {0}, {0}), "causal_conv: K is 2, 3 or 4, got 5",
                         Error);
  }
}

}  // namespace
