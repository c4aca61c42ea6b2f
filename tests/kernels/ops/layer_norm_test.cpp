#include "kernels/ops/layer_norm.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/kernels/support.h"

namespace layer_norm_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/ops/layer_norm") {
  TEST_CASE("is the definition, rounded once, within strided views and in place") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t width : {1, 15, 16, 64, 800, 2049}) {
          CAPTURE(width);
          Queue queue = test_queue(isa, 2);
          TestTensor x = random_tensor(dtype, {5, width}, 1, 3.0F, {5, 1});
          for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, x.get(i) + 10.0F);
          const auto weight = random_tensor(DType::f32, {width}, 2, 1.0F, {0, 3});
          TestTensor y(dtype, {5, width}, {7, 3});
          const auto before = x.everything();
          layer_norm(queue, {.x = x, .weight = weight, .y = y, .eps = 1e-3F});
          CHECK(y.guards_intact());
          CHECK(x.everything() == before);
          for (std::int64_t t = 0; t < 5; ++t) {
            double mean = 0, squares = 0;
            for (std::int64_t i = 0; i < width; ++i) mean += x.get(t * width + i);
            mean /= static_cast<double>(width);
            for (std::int64_t i = 0; i < width; ++i) {
              squares += std::pow(x.get(t * width + i) - mean, 2.0);
            }
            const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-3);
            for (std::int64_t i = 0; i < width; ++i) {
              const double e = (x.get(t * width + i) - mean) * scale * weight.get(i);
              const double bound = dtype == DType::bf16 ? 0.00391 : 2e-6;
              REQUIRE(std::fabs(y.get(t * width + i) - e) <= bound * std::fabs(e) + 4e-5);
            }
          }
          layer_norm(queue, {.x = x, .weight = weight, .y = x, .eps = 1e-3F});
          CHECK(same_bytes(x, y));
        }
      }
    }
  }

  TEST_CASE("a row's bits do not depend on other rows or on threads") {
    Queue one = test_queue(best_isa(), 1), three = test_queue(best_isa(), 3);
    const auto x = random_tensor(DType::bf16, {9, 130}, 1);
    const auto weight = random_tensor(DType::f32, {130}, 2);
    const TestTensor all(DType::bf16, {9, 130}), rows(DType::bf16, {9, 130});
    layer_norm(three, {.x = x, .weight = weight, .y = all});
    for (std::int64_t t = 9; t-- > 0;) {
      layer_norm(one, {.x = x.view().rows(t, 1), .weight = weight, .y = rows.view().rows(t, 1)});
    }
    CHECK(same_bytes(all, rows));
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {2, 8}), weight(DType::f32, {7});
    CHECK_THROWS_AS(layer_norm(queue, {.x = x, .weight = weight, .y = x}), Error);
    CHECK_THROWS_AS(layer_norm(queue, {.x = x, .weight = {}, .y = x}), Error);
  }
}

}  // namespace layer_norm_test
