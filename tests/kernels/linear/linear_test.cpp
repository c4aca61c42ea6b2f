#include "kernels/linear/linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "tests/kernels/linear/coded_weights.h"
#include "tests/kernels/support.h"

namespace linear_linear_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t rows, outputs, columns;  // T, N, K
};

/// Sizes around the edges of panels, pairs, tiles of rows and runs of k.
constexpr Shape shapes[] = {{1, 1, 1},   {1, 64, 2},   {2, 65, 3},    {5, 63, 64},  {6, 128, 31},
                            {7, 130, 5}, {13, 70, 96}, {50, 200, 33}, {9, 64, 4099}};

/// One matrix of random values in the type of activations, packed and as published.
struct Matrix {
  Matrix(Queue& queue, DType dtype, std::int64_t n, std::int64_t k, std::uint32_t seed)
      : values(random_tensor(dtype, {n, k}, seed, 1.0F / std::sqrt(static_cast<float>(k)))),
        bytes(values.packed()),
        panels(Weight::pack(queue, {dtype, 1, n, k, bytes}, dtype)),
        rows(Weight::view({dtype, 1, n, k, bytes})) {}

  TestTensor values;
  std::vector<std::byte> bytes;
  Weight panels, rows;
};

/// The exact answer and the bound of the contract, in double.
struct Exact {
  double value, bound;
};
Exact exact(const TestTensor& x, const Matrix& w, std::int64_t t, std::int64_t n, double scale,
            double old, double bias) {
  const std::int64_t columns = w.panels.columns();
  double sum = bias, sizes = std::fabs(bias);
  for (std::int64_t k = 0; k < columns; ++k) {
    const double product = static_cast<double>(x.get(t * columns + k)) *
                           static_cast<double>(w.values.get(n * columns + k));
    sum += product;
    sizes += std::fabs(product);
  }
  const double ulp = std::ldexp(1.0, -23);
  return {old + scale * sum,
          static_cast<double>(columns + 4) * ulp * std::fabs(scale) * sizes + ulp * std::fabs(old)};
}

void check_against_exact(const TestTensor& y, const TestTensor& before, const TestTensor& x,
                         const Matrix& w, const Shape& s, const Linear& op) {
  const double rounding = op.y.dtype == DType::bf16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -23);
  double worst = 0;
  for (std::int64_t t = 0; t < s.rows; ++t) {
    for (std::int64_t n = 0; n < s.outputs; ++n) {
      const double old = op.add ? before.get(t * s.outputs + n) : 0.0;
      const double bias = op.bias.empty() ? 0.0 : op.bias.as<float>()[n];
      const Exact e = exact(x, w, t, n, op.scale, old, bias);
      const double error = std::fabs(y.get(t * s.outputs + n) - e.value);
      const double allowed = e.bound + rounding * (std::fabs(e.value) + e.bound) + 1e-37;
      worst = std::max(worst, std::isnan(error) ? INFINITY : error / allowed);
    }
  }
  CHECK(worst <= 1.0);
}

}  // namespace

TEST_SUITE("kernels/linear/linear") {
  TEST_CASE("every route keeps the contract's bound, writes y only and leaves its inputs alone") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      for (const Shape& s : shapes) {
        for (const DType type : {DType::f32, DType::bf16}) {
          const Matrix w(queue, type, s.outputs, s.columns, 3);
          const TestTensor x = random_tensor(type, {s.rows, s.columns}, 4, 1.0F, {3, 1});
          for (const DType out : {DType::f32, type}) {
            for (const bool published : {false, true}) {
              for (const bool add : {false, true}) {
                CAPTURE(kernels::testing::name_of(isa));
                CAPTURE(s.rows);
                CAPTURE(s.outputs);
                CAPTURE(s.columns);
                CAPTURE(published);
                TestTensor y = random_tensor(out, {s.rows, s.outputs}, 5, 1.0F, {5, 3});
                const TestTensor before = y;
                const auto x_bytes = x.everything();
                const TestTensor bias = random_tensor(DType::f32, {s.outputs}, 6);
                const Linear op = {.x = x,
                                   .weight = published ? &w.rows : &w.panels,
                                   .y = y,
                                   .scale = add ? -0.75F : 1.0F,
                                   .add = add,
                                   .bias = out == type ? Tensor(bias) : Tensor()};
                linear(queue, op);
                check_against_exact(y, before, x, w, s, op);
                CHECK(y.guards_intact());
                CHECK(x.everything() == x_bytes);
              }
            }
          }
        }
      }
    }
  }

  TEST_CASE("heads: the bits of linear, head by head, on any threads") {
    constexpr std::int64_t heads = 5, outputs = 70, columns = 96, first = 3, step = 101;
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        Queue queue = test_queue(isa, 3);
        const auto bytes = random_tensor(type, {heads * outputs, columns}, 3).packed();
        GroupedMatrix shuffled(DType::u8, DType::f32, false, 32, heads, outputs, columns, 9);
        shuffled.shuffle(10);
        const Weight plain = Weight::pack(queue, {type, heads, outputs, columns, bytes}, type);
        const Weight ordered = Weight::pack(queue, shuffled.source, type);
        CHECK(ordered.order(0).empty() == (type == DType::f32));  // which meets no codes
        for (const auto& [weight, rows] : {std::pair(&plain, 1), std::pair(&plain, 7),
                                           std::pair(&plain, 130), std::pair(&ordered, 7)}) {
          const TestTensor x = random_tensor(type, {rows, heads * step}, 4, 1.0F, {3, 1});
          TestTensor y = random_tensor(type, {rows, heads * outputs}, 5, 1.0F, {5, 3}),
                     expected = y;
          linear_heads(queue, {.x = x, .first = first, .weight = weight, .y = y});
          for (std::int64_t h = 0; h < heads; ++h) {
            linear(queue, {.x = x.view().columns(h * step + first, columns),
                           .weight = weight,
                           .expert = h,
                           .y = expected.view().columns(h * outputs, outputs)});
          }
          CHECK(y.everything() == expected.everything());
        }
        const TestTensor narrow(type, {1, heads * (columns + first - 1)});
        TestTensor y(type, {1, heads * outputs});
        CHECK_THROWS(linear_heads(queue, {.x = narrow, .first = first, .weight = &plain, .y = y}));
      }
    }
  }

  TEST_CASE("a row's answer is the same bits alone, among others, in any order, on any threads") {
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const Shape s : {Shape{67, 200, 77}, Shape{300, 65, 130}, Shape{31, 70, 4500}}) {
          CAPTURE(kernels::testing::name_of(isa));
          CAPTURE(s.columns);
          Queue one = test_queue(isa, 1);
          const Matrix w(one, type, s.outputs, s.columns, 6);
          const TestTensor x = random_tensor(type, {s.rows, s.columns}, 7);
          TestTensor whole(type, {s.rows, s.outputs});
          linear(one, {.x = x, .weight = &w.panels, .y = whole, .scale = 0.3F});
          std::mt19937 engine(8);
          for (const int threads : {1, 2, 3}) {
            Queue queue = test_queue(isa, threads);
            for (int repeat = 0; repeat < 3; ++repeat) {
              TestTensor cut(type, {s.rows, s.outputs}, {7, 1});
              const auto begins = random_cuts(static_cast<std::int32_t>(s.rows), engine);
              for (std::size_t i = begins.size() - 1; i-- > 0;) {
                const std::int64_t count = begins[i + 1] - begins[i];
                linear(queue, {.x = x.view().rows(begins[i], count),
                               .weight = &w.panels,
                               .y = cut.view().rows(begins[i], count),
                               .scale = 0.3F});
              }
              CHECK(same_bytes(whole, cut));
              CHECK(cut.guards_intact());
            }
          }
        }
      }
    }
  }

  TEST_CASE("outputs do not depend on where they lie in a panel, nor on the other outputs") {
    constexpr std::int64_t rows = 8, columns = 91;
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        CAPTURE(kernels::testing::name_of(isa));
        Queue queue = test_queue(isa, 2);
        const Matrix w(queue, type, 150, columns, 9);
        const TestTensor x = random_tensor(type, {rows, columns}, 10);
        TestTensor whole(type, {rows, 150});
        linear(queue, {.x = x, .weight = &w.panels, .y = whole});
        for (const std::int64_t first : {1, 17, 64, 149}) {
          const auto row_bytes = static_cast<std::size_t>(columns) * size_of(type);
          const std::vector<std::byte> rest(w.bytes.begin() + first * static_cast<long>(row_bytes),
                                            w.bytes.end());
          const Weight part = Weight::pack(queue, {type, 1, 150 - first, columns, rest}, type);
          TestTensor y(type, {rows, 150 - first});
          linear(queue, {.x = x, .weight = &part, .y = y});
          for (std::int64_t t = 0; t < rows; ++t) {
            for (std::int64_t n = first; n < 150; ++n) {
              if (y.get(t * (150 - first) + n - first) != whole.get(t * 150 + n)) FAIL_CHECK(n);
            }
          }
        }
      }
    }
  }

  TEST_CASE("bf16 is what f32 gives on the same values, but for the rounding of y") {
    const Shape s = {11, 70, 130};
    for (const Isa isa : available_isas()) {
      CAPTURE(kernels::testing::name_of(isa));
      Queue queue = test_queue(isa, 1);
      const Matrix w(queue, DType::bf16, s.outputs, s.columns, 11);
      const TestTensor x = random_tensor(DType::bf16, {s.rows, s.columns}, 12);
      const TestTensor wide = converted(x, DType::f32, {s.rows, s.columns});
      const Weight wide_w =
          Weight::pack(queue, {DType::bf16, 1, s.outputs, s.columns, w.bytes}, DType::f32);
      TestTensor y(DType::f32, {s.rows, s.outputs}), wide_y(DType::f32, {s.rows, s.outputs});
      linear(queue, {.x = x, .weight = &w.panels, .y = y});
      linear(queue, {.x = wide, .weight = &wide_w, .y = wide_y});
      CHECK(largest_error(y, wide_y) < 1e-5);
    }
  }

  TEST_CASE("f16 gives the bits that f32 panels with the same numbers give, denormals and all") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      for (const Shape& s : shapes) {
        CAPTURE(kernels::testing::name_of(isa));
        CAPTURE(s.rows);
        CAPTURE(s.columns);
        TestTensor halves = random_tensor(DType::f16, {s.outputs, s.columns}, 18);
        for (std::int64_t i = 0; i < halves.size(); i += 3) {  // down to the smallest denormal
          halves.set(i, halves.get(i) * 0x1p-20F);
        }
        halves.set(0, s.columns == 31 ? INFINITY : -0.0F);
        const auto bytes = halves.packed();
        const WeightSource source(DType::f16, 1, s.outputs, s.columns, bytes);
        const Weight narrow = Weight::pack(queue, source, DType::f16);
        const Weight wide = Weight::pack(queue, source, DType::f32);
        CHECK(narrow.dtype() == DType::f16);
        const std::int64_t columns = s.columns + s.columns % 2;
        const std::int64_t outputs = (s.outputs + 63) / 64 * 64;
        CHECK(narrow.owned_bytes() == static_cast<std::size_t>(outputs * columns) * 2);
        const TestTensor x = random_tensor(DType::f32, {s.rows, s.columns}, 19, 1.0F, {3, 1});
        for (const bool add : {false, true}) {
          TestTensor y = random_tensor(DType::f32, {s.rows, s.outputs}, 20, 1.0F, {5, 3});
          TestTensor expected = y;
          linear(queue, {.x = x, .weight = &narrow, .y = y, .scale = 0.7F, .add = add});
          linear(queue, {.x = x, .weight = &wide, .y = expected, .scale = 0.7F, .add = add});
          CHECK(y.everything() == expected.everything());
        }
      }
    }
  }

  TEST_CASE("each expert has its own matrix") {
    Queue queue = test_queue(best_isa(), 2);
    const TestTensor values = random_tensor(DType::f32, {3, 70, 20}, 13);
    const auto bytes = values.packed();
    const Weight all = Weight::pack(queue, {DType::f32, 3, 70, 20, bytes}, DType::f32);
    const TestTensor x = random_tensor(DType::f32, {4, 20}, 14);
    for (std::int64_t e = 0; e < 3; ++e) {
      const auto own =
          std::span(bytes).subspan(static_cast<std::size_t>(e) * 70 * 20 * 4, 70 * 20 * 4);
      const Weight one = Weight::pack(queue, {DType::f32, 1, 70, 20, own}, DType::f32);
      TestTensor y(DType::f32, {4, 70}), expected(DType::f32, {4, 70});
      linear(queue, {.x = x, .weight = &all, .expert = e, .y = y});
      linear(queue, {.x = x, .weight = &one, .y = expected});
      CHECK(same_bytes(y, expected));
    }
  }

  TEST_CASE("infinity and NaN in x reach y and stay in their row") {
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        CAPTURE(kernels::testing::name_of(isa));
        Queue queue = test_queue(isa, 1);
        const Matrix w(queue, type, 10, 33, 15);
        TestTensor x = random_tensor(type, {4, 33}, 16);
        x.set(1 * 33 + 32, INFINITY);
        x.set(2 * 33 + 0, NAN);
        TestTensor y(type, {4, 10});
        linear(queue, {.x = x, .weight = &w.panels, .y = y});
        for (std::int64_t n = 0; n < 10; ++n) {
          CHECK(std::isfinite(y.get(n)));
          CHECK(std::isinf(y.get(10 + n)));
          CHECK(std::isnan(y.get(20 + n)));
          CHECK(std::isfinite(y.get(30 + n)));
        }
      }
    }
  }

  TEST_CASE("arguments against the contract are errors") {
    Queue queue = test_queue(best_isa(), 1);
    const Matrix w(queue, DType::bf16, 10, 33, 17);
    const TestTensor x(DType::bf16, {4, 33}), wide(DType::f32, {4, 33}),
        narrow(DType::bf16, {4, 32});
    const TestTensor y(DType::bf16, {4, 10}), few(DType::bf16, {3, 10}),
        short_y(DType::bf16, {4, 9});
    CHECK_THROWS_AS(linear(queue, {.x = narrow, .weight = &w.panels, .y = y}), Error);
    CHECK_THROWS_AS(linear(queue, {.x = x, .weight = &w.panels, .y = few}), Error);
    CHECK_THROWS_AS(linear(queue, {.x = x, .weight = &w.panels, .y = short_y}), Error);
    CHECK_THROWS_AS(linear(queue, {.x = x, .weight = &w.panels, .expert = 1, .y = y}), Error);
    CHECK_THROWS_AS(linear(queue, {.x = wide, .weight = &w.panels, .y = y}), Error);
    const Weight halves = Weight::pack(queue, {DType::bf16, 1, 10, 33, w.bytes}, DType::f16);
    CHECK_THROWS_AS(linear(queue, {.x = x, .weight = &halves, .y = y}), Error);
    CHECK_THROWS_AS(linear(queue, {.x = x, .weight = nullptr, .y = y}), Error);
    linear(queue, {.x = x.view().rows(0, 0), .weight = &w.panels, .y = y.view().rows(0, 0)});
  }
}

}  // namespace linear_linear_test
