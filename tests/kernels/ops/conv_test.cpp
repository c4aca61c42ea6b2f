#include <doctest/doctest.h>

#include "kernels/ops/conv.h"
#include "tests/kernels/ops/conv_case.h"

namespace ops_conv_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Inputs = ConvInputs<CausalConv>;

const ConvShape shapes[] = {{13, 5, 4},   {1, 100, 4}, {9, 65, 3},
                            {21, 300, 2}, {2, 1, 4},   {40, 257, 4}};

TEST_SUITE("kernels/ops/causal_conv") {
  TEST_CASE("is the definition on every route, with and without a bias") {
    check_definition<CausalConv>(
        shapes,
        [](const Inputs& in, std::int64_t t, std::int64_t c) {
          return in.x.get(t * in.s.channels + c);
        },
        [](const Inputs& in, std::int64_t t, std::int64_t c, double sum, double) {
          const double want = sum / (1.0 + std::exp(-sum));
          const double bound = in.y.view().dtype == DType::bf16 ? 0.0040 : 4e-6;
          REQUIRE(std::fabs(in.y.get(t * in.s.channels + c) - want) <=
                  bound * std::fabs(want) + 2e-6);
        });
  }

  TEST_CASE("a fresh sequence has zeros to its left, and no bias is a bias of zero") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      Inputs fresh(DType::bf16, {6, 70, 4, false}, 2), zeroed(DType::bf16, {6, 70, 4}, 2);
      for (std::int64_t i = 0; i < 70; ++i) zeroed.bias.set(i, 0.0F);
      for (std::int64_t i = 0; i < zeroed.windows.size(); ++i) zeroed.windows.set(i, 0.0F);
      zeroed.run(queue, {0, 6}, {0}, {1});
      fresh.run(queue, {0, 6}, {-1}, {1});
      CHECK(same_bytes(fresh.y, zeroed.y));
    }
  }

  TEST_CASE("cutting a sequence anywhere changes neither output nor window, on any threads") {
    check_cuts<CausalConv>();
  }

  TEST_CASE("a chain of spans leaves what a call for each of them leaves, on any threads") {
    check_chains<CausalConv>();
  }

  TEST_CASE("spans that leave no window change nothing else, on any threads") {
    check_windows_discarded<CausalConv>();
  }

  TEST_CASE("permuting spans permutes outputs, and only the named slots are written") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      const ConvShape s{12, 77, 4};
      Inputs a(DType::f32, s, 6), b(DType::f32, s, 6);
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
      const Inputs untouched(DType::f32, s, 6);
      for (const std::int64_t slot : {0, 2, 4}) {
        for (std::int64_t i = slot * 77 * 3; i < (slot + 1) * 77 * 3; ++i) {
          REQUIRE(a.windows.get(i) == untouched.windows.get(i));
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    Inputs f(DType::f32, {4, 8, 4}, 2);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {0}, {2}),
                         "causal_conv: write_slot is a slot or -1, got 2", Error);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {-2}, {0}),
                         "causal_conv: read_slot is a slot or -1, got -2", Error);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 2, 2, 4}, {0, 0, 0}, {0, 1, 0}),
                         "causal_conv: span_begin rises, got 2", Error);
    Inputs wide(DType::f32, {4, 8, 5}, 2);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 4}, {0}, {0}), "causal_conv: K is 2, 3 or 4, got 5",
                         Error);
  }
}

using ShortInputs = ConvInputs<GatedConv>;

/// As values of the tensors' type.
float rounded(const ShortInputs& in, double value) {
  const auto nearest = static_cast<float>(value);
  return in.y.view().dtype == DType::bf16 ? to_float(to_bf16(nearest)) : nearest;
}

/// u of token t as the convolution sees it.
float gated(const ShortInputs& in, std::int64_t t, std::int64_t c) {
  const float before = in.x.get(t * 3 * in.s.channels + c);
  return rounded(in, before * in.x.get((t * 3 + 2) * in.s.channels + c));
}

const ConvShape short_shapes[] = {{13, 5, 3, false}, {1, 100, 4},  {9, 65, 3, false}, {21, 300, 2},
                                  {2, 1, 4},         {40, 257, 4}, {17, 300, 7},      {3, 66, 7}};

TEST_SUITE("kernels/ops/short_conv") {
  TEST_CASE("is the definition on every route, with and without a bias") {
    check_definition<GatedConv>(
        short_shapes, gated,
        [](const ShortInputs& in, std::int64_t t, std::int64_t c, double sum, double size) {
          const double gate = in.x.get((t * 3 + 1) * in.s.channels + c), want = gate * sum;
          // Two roundings, and a sum whose own error may tip the first of them.
          const double bound = in.y.view().dtype == DType::bf16 ? 0x1.02p-7 : 0x1p-22;
          REQUIRE(std::fabs(in.y.get(t * in.s.channels + c) - want) <=
                  bound * std::fabs(want) + std::fabs(gate) * size * 0x1p-21 + 1e-30);
        });
  }

  TEST_CASE("in bf16 the sum is rounded before the product with its gate") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      ShortInputs f(DType::bf16, {64, 48, 2, false}, 2);
      for (std::int64_t c = 0; c < 48; ++c) {  // one tap: the sum is exact in f32
        f.weight.set(2 * c, 0.0F);
        f.weight.set(2 * c + 1, 1.0F + static_cast<float>(c) * 0x1p-10F);
      }
      f.run(queue, {0, 64}, {-1}, {0});
      for (std::int64_t i = 0; i < 64 * 48; ++i) {
        const std::int64_t t = i / 48, c = i % 48;
        const float sum = rounded(f, static_cast<double>(gated(f, t, c)) * f.weight.get(2 * c + 1));
        REQUIRE(f.y.get(i) == rounded(f, f.x.get((t * 3 + 1) * 48 + c) * sum));
      }
    }
  }

  TEST_CASE("cutting a sequence anywhere changes neither output nor window, on any threads") {
    check_cuts<GatedConv>();
  }

  TEST_CASE("a chain of spans leaves what a call for each of them leaves, on any threads") {
    check_chains<GatedConv>();
  }

  TEST_CASE("spans that leave no window change nothing else, on any threads") {
    check_windows_discarded<GatedConv>();
  }

  TEST_CASE(
      "permuting spans permutes outputs, only the named slots are written, and what is not a "
      "number stays in its span") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      const ConvShape s{12, 77, 3};
      ShortInputs a(DType::f32, s, 6), b(DType::f32, s, 6);
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
      const ShortInputs untouched(DType::f32, s, 6);
      for (const std::int64_t slot : {0, 2, 3, 4, 5}) {
        const ShortInputs& expected = slot == 3 || slot == 5 ? b : untouched;
        for (std::int64_t i = slot * 77 * 2; i < (slot + 1) * 77 * 2; ++i) {
          REQUIRE(a.windows.get(i) == expected.windows.get(i));
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    ShortInputs f(DType::f32, {4, 8, 3}, 2);
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {0}, {2}),
                         "gated_conv: write_slot is a slot or -1, got 2", Error);
    f.x = TestTensor(DType::f32, {4, 16});
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 4}, {0}, {0}),
                         "gated_conv: x needs 24 in dimension 1, got 16", Error);
    ShortInputs wide(DType::f32, {4, 8, 5}, 2);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 4}, {0}, {0}), "gated_conv: K is 2, 3, 4 or 7, got 5",
                         Error);
  }
}

}  // namespace

}  // namespace ops_conv_test
