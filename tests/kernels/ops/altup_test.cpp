#include "kernels/ops/altup.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "tests/kernels/support.h"

namespace altup_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t streams, width, active;
};
const Shape shapes[] = {{2, 1, 1}, {3, 17, 2}, {4, 64, 0}, {8, 33, 5}};

constexpr std::int64_t tokens = 5;

double bound_of(DType dtype) { return dtype == DType::bf16 ? 0.00391 : 2e-6; }

/// Row `row` of the coefficients times tanh(router) of a token.
double coefficient(const TestTensor& coefs, const TestTensor& router, std::int64_t streams,
                   std::int64_t token, std::int64_t row) {
  double sum = 0;
  for (std::int64_t k = 0; k < streams; ++k) {
    sum += coefs.get(row * streams + k) * std::tanh(double{router.get(token * streams + k)});
  }
  return sum;
}

}  // namespace

TEST_SUITE("kernels/ops/altup") {
  TEST_CASE("a prediction is the definition, rounded once, within strided views") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const auto& [n, width, active] : shapes) {
        CAPTURE(n);
        Queue queue = test_queue(Isa::plain, 2);
        const auto x = random_tensor(dtype, {tokens, n * width}, 1, 1.0F, {5, 1});
        const auto router = random_tensor(DType::f32, {tokens, n}, 2, 2.0F);
        const auto coefs = random_tensor(DType::f32, {n * n, n}, 3);
        TestTensor y(dtype, {tokens, n * width}, {3, 0}), h(dtype, {tokens, width}, {7, 3});
        altup_predict(queue,
                      {.x = x, .router = router, .coefs = coefs, .y = y, .h = h, .active = active});
        CHECK(y.guards_intact());
        CHECK(h.guards_intact());
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t j = 0; j < n; ++j) {
            for (std::int64_t i = 0; i < width; ++i) {
              double e = x.get((t * n + j) * width + i), all = std::fabs(e);
              for (std::int64_t from = 0; from < n; ++from) {
                const double term = coefficient(coefs, router, n, t, j * n + from) *
                                    x.get((t * n + from) * width + i);
                e += term;
                all += std::fabs(term);
              }
              const float found = y.get((t * n + j) * width + i);
              REQUIRE(std::fabs(found - e) <= bound_of(dtype) * std::fabs(e) + 4e-6 * all);
              if (j == active) REQUIRE(h.get(t * width + i) == found);
            }
          }
        }
      }
    }
  }

  TEST_CASE("a correction is the definition, in place, with a scale and without") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const auto& [n, width, active] : shapes) {
        CAPTURE(n);
        Queue queue = test_queue(Isa::plain, 2);
        const auto x = random_tensor(dtype, {tokens, n * width}, 1, 1.0F, {5, 1});
        const auto router = random_tensor(DType::f32, {tokens, n}, 2, 2.0F);
        const auto coefs = random_tensor(DType::f32, {n, n}, 3);
        const auto scale = random_tensor(DType::f32, {width}, 4);
        const auto given = random_tensor(dtype, {tokens, width}, 5, 1.0F, {7, 3});
        TestTensor y = x, h = given, unscaled = given, apart(dtype, {tokens, n * width});
        AltupCorrect op = {.x = y,
                           .router = router,
                           .coefs = coefs,
                           .scale = scale,
                           .y = y,
                           .h = h,
                           .active = active};
        altup_correct(queue, op);
        op.x = x;
        op.y = apart;
        op.h = unscaled;
        op.scale = {};
        altup_correct(queue, op);
        CHECK(y.guards_intact());
        CHECK(h.guards_intact());
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t i = 0; i < width; ++i) {
            const double news =
                double{given.get(t * width + i)} - x.get((t * n + active) * width + i);
            for (std::int64_t j = 0; j < n; ++j) {
              const std::int64_t at = (t * n + j) * width + i;
              const double term = (1 + coefficient(coefs, router, n, t, j)) * news;
              const double e = x.get(at) + term;
              const double all = std::fabs(double{x.get(at)}) + std::fabs(term);
              REQUIRE(std::fabs(y.get(at) - e) <= bound_of(dtype) * std::fabs(e) + 4e-6 * all);
              REQUIRE(apart.get(at) == y.get(at));
              if (j != active) continue;
              REQUIRE(unscaled.get(t * width + i) == y.get(at));
              const double scaled = double{y.get(at)} * scale.get(i);
              REQUIRE(std::fabs(h.get(t * width + i) - scaled) <=
                      bound_of(dtype) * std::fabs(scaled));
            }
          }
        }
      }
    }
  }

  TEST_CASE("rows take the magnitude of others, nothing stays nothing; rows are added") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Queue queue = test_queue(Isa::plain, 2);
      const std::int64_t width = 77;
      TestTensor x = random_tensor(dtype, {3, width}, 1, 0.2F, {5, 1});
      const auto like = random_tensor(dtype, {3, width}, 2, 3.0F, {1, 0});
      for (std::int64_t i = 0; i < width; ++i) x.set(2 * width + i, 0.0F);
      const TestTensor before = x;
      match_magnitude(queue, {.x = x, .like = like});
      CHECK(x.guards_intact());
      for (std::int64_t t = 0; t < 3; ++t) {
        double wanted = 0, found = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          wanted += std::pow(like.get(t * width + i), 2.0) / static_cast<double>(width);
          found += std::pow(before.get(t * width + i), 2.0) / static_cast<double>(width);
        }
        const double factor = std::sqrt(wanted / std::max(found, 1e-5));
        for (std::int64_t i = 0; i < width; ++i) {
          const double e = before.get(t * width + i) * factor;
          REQUIRE(std::fabs(x.get(t * width + i) - e) <= bound_of(dtype) * std::fabs(e));
        }
      }
      TestTensor y = like;
      add_rows(queue, {.x = x, .y = y, .scale = 0.25F});
      for (std::int64_t i = 0; i < 3 * width; ++i) {
        const double e = (double{like.get(i)} + x.get(i)) * 0.25;
        REQUIRE(std::fabs(y.get(i) - e) <= bound_of(dtype) * std::fabs(e) + 1e-7);
      }
    }
  }

  TEST_CASE("a token's bits do not depend on others or on threads") {
    Queue one = test_queue(best_isa(), 1), three = test_queue(best_isa(), 3);
    const std::int64_t n = 4, width = 40, count = 9;
    const auto x = random_tensor(DType::bf16, {count, n * width}, 1);
    const auto router = random_tensor(DType::f32, {count, n}, 2);
    const auto coefs = random_tensor(DType::f32, {n * n, n}, 3);
    const TestTensor all(DType::bf16, {count, n * width}), rows = all;
    const TestTensor h(DType::bf16, {count, width}), h_of_rows = h;
    const auto run = [&](Queue& queue, const TestTensor& y, const TestTensor& active,
                         std::int64_t first, std::int64_t tokens_of) {
      altup_predict(queue, {.x = x.view().rows(first, tokens_of),
                            .router = router.view().rows(first, tokens_of),
                            .coefs = coefs,
                            .y = y.view().rows(first, tokens_of),
                            .h = active.view().rows(first, tokens_of)});
      altup_correct(queue, {.x = y.view().rows(first, tokens_of),
                            .router = router.view().rows(first, tokens_of),
                            .coefs = coefs.view().rows(0, n),
                            .scale = {},
                            .y = y.view().rows(first, tokens_of),
                            .h = active.view().rows(first, tokens_of)});
    };
    run(three, all, h, 0, count);
    for (std::int64_t t = count; t-- > 0;) run(one, rows, h_of_rows, t, 1);
    CHECK(same_bytes(all, rows));
    CHECK(same_bytes(h, h_of_rows));
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {2, 8}), h(DType::f32, {2, 4}), router(DType::f32, {2, 2});
    const TestTensor coefs(DType::f32, {4, 2}), wrong(DType::f32, {3, 2});
    AltupPredict op = {.x = x, .router = router, .coefs = coefs, .y = x, .h = h, .active = 0};
    op.active = 2;
    CHECK_THROWS_AS(altup_predict(queue, op), Error);
    op.active = 0;
    op.coefs = wrong;
    CHECK_THROWS_AS(altup_predict(queue, op), Error);
    CHECK_THROWS_AS(match_magnitude(queue, {.x = x, .like = h}), Error);
    CHECK_THROWS_AS(add_rows(queue, {.x = x, .y = h}), Error);
  }
}

}  // namespace altup_test
