#include "kernels/ops/gated_norm.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

namespace gated_norm_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, width, groups;
};
constexpr Case cases[] = {{1, 1536, 1},  {4, 96, 4},   {3, 33, 1},   {7, 2 * 50, 2}, {2, 5, 5},
                          {33, 3072, 1}, {2, 8192, 1}, {1, 8209, 1}, {1, 20000, 1}};

std::vector<double> expected(const TestTensor& x, const TestTensor& gate, const TestTensor& weight,
                             const Case& c, double eps, bool norm_first, bool sigmoid) {
  std::vector<double> y;
  const std::int64_t width = c.width / c.groups;
  for (std::int64_t begin = 0; begin < x.size(); begin += width) {
    double squares = 0;
    std::vector<double> product;
    for (std::int64_t i = begin; i < begin + width; ++i) {
      const double z = gate.get(i);
      const double u = x.get(i) * (sigmoid ? 1.0 : z) / (1.0 + std::exp(-z));
      product.push_back(u);
      squares += norm_first ? static_cast<double>(x.get(i)) * x.get(i) : u * u;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::int64_t i = 0; i < width; ++i) {
      y.push_back(product[static_cast<std::size_t>(i)] * scale * weight.get((begin + i) % c.width));
    }
  }
  return y;
}

TEST_SUITE("kernels/ops/gated_norm") {
  TEST_CASE("is the definition, rounded once, on every route and within strided views") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) {
          for (const auto& [norm_first, sigmoid] :
               {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
            CAPTURE(name_of(isa));
            CAPTURE(c.width);
            CAPTURE(norm_first);
            Queue queue = test_queue(isa, 2);
            const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 2.0F, {5, 1});
            const auto gate = random_tensor(dtype, {c.tokens, c.width}, 2, 6.0F, {9, 1});
            const auto weight = random_tensor(DType::f32, {c.width}, 3, 1.0F, {0, 3});
            TestTensor y(dtype, {c.tokens, c.width}, {7, 3});
            const auto x_before = x.everything();
            const auto gate_before = gate.everything();
            gated_norm(queue, {.x = x,
                               .gate = gate,
                               .weight = weight,
                               .y = y,
                               .eps = 1e-5F,
                               .groups = c.groups,
                               .norm_first = norm_first,
                               .sigmoid_gate = sigmoid});
            CHECK(y.guards_intact());
            CHECK(x.everything() == x_before);
            CHECK(gate.everything() == gate_before);
            const auto want = expected(x, gate, weight, c, 1e-5, norm_first, sigmoid);
            const double f32_bound = 3e-6 + 1e-9 * static_cast<double>(c.width);
            const double bound = dtype == DType::bf16 ? 0.00391 : f32_bound;
            for (std::int64_t i = 0; i < y.size(); ++i) {
              const double e = want[static_cast<std::size_t>(i)];
              REQUIRE(std::fabs(y.get(i) - e) <= bound * std::fabs(e) + 1e-7);
            }
          }
        }
      }
    }
  }

  TEST_CASE("a row's answer depends on no other row, on no thread and not on writing in place") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool norm_first : {false, true}) {
          const auto x = random_tensor(dtype, {41, 532}, 3);
          const auto gate = random_tensor(dtype, {41, 532}, 5);
          const auto weight = random_tensor(DType::f32, {532}, 4);
          const auto norm = [&](Queue& queue, const Tensor& from, const Tensor& z,
                                const Tensor& y) {
            gated_norm(queue, {.x = from,
                               .gate = z,
                               .weight = weight,
                               .y = y,
                               .groups = 2,
                               .norm_first = norm_first});
          };
          TestTensor whole(dtype, {41, 532});
          Queue one = test_queue(isa, 1);
          norm(one, x, gate, whole);
          for (const int threads : {2, 3}) {
            Queue queue = test_queue(isa, threads);
            TestTensor again = x;
            norm(queue, again, gate, again);
            CHECK(same_bytes(again, whole));
          }
          TestTensor rows(dtype, {41, 532}, {3, 1});
          for (std::int64_t t = 40; t >= 0; --t) {
            norm(one, x.view().rows(t, 1), gate.view().rows(t, 1), rows.view().rows(t, 1));
          }
          CHECK(same_bytes(rows, whole));
        }
      }
    }
  }

  TEST_CASE("with the norm first a gate reaches its own element alone") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        CAPTURE(name_of(isa));
        const auto x = random_tensor(dtype, {1, 37}, 1);
        auto gate = random_tensor(dtype, {1, 37}, 2);
        const auto weight = random_tensor(DType::f32, {37}, 3);
        TestTensor y(dtype, {1, 37}), z = y;
        Queue queue = test_queue(isa);
        gated_norm(queue, {.x = x, .gate = gate, .weight = weight, .y = y, .norm_first = true});
        gate.set(3, -200.0F);
        gate.set(35, NAN);
        gated_norm(queue, {.x = x, .gate = gate, .weight = weight, .y = z, .norm_first = true});
        for (std::int64_t i = 0; i < 37; ++i) {
          CAPTURE(i);
          if (i == 35) {
            CHECK(std::isnan(z.get(i)));
          } else {
            CHECK(z.get(i) == (i == 3 ? 0.0F : y.get(i)));
          }
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {2, 6}), other(DType::f32, {2, 5}), weight(DType::f32, {6});
    CHECK_THROWS_WITH_AS(
        gated_norm(queue, {.x = x, .gate = x, .weight = weight, .y = x, .groups = 4}),
        "gated_norm: groups divides H, got 4", Error);
    CHECK_THROWS_AS(gated_norm(queue, {.x = x, .gate = other, .weight = weight, .y = x}), Error);
  }
}

}  // namespace

}  // namespace gated_norm_test
