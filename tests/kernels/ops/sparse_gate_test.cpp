#include "kernels/ops/sparse_gate.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/base/error.h"
#include "tests/kernels/support.h"

namespace sparse_gate_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/ops/sparse_gate") {
  TEST_CASE("is the definition, rounded once, within strided views") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t width : {1, 15, 16, 64, 801}) {
        for (const float deviations : {1.6448536F, 0.0F, -0.8F}) {
          CAPTURE(width);
          CAPTURE(deviations);
          Queue queue = test_queue(Isa::plain, 2);
          TestTensor x = random_tensor(dtype, {5, width}, 1, 3.0F, {5, 1});
          const TestTensor before = x;
          sparse_gate(queue, {.x = x, .deviations = deviations});
          CHECK(x.guards_intact());
          for (std::int64_t t = 0; t < 5; ++t) {
            double mean = 0, squares = 0;
            for (std::int64_t i = 0; i < width; ++i) mean += before.get(t * width + i);
            mean /= static_cast<double>(width);
            for (std::int64_t i = 0; i < width; ++i) {
              squares += std::pow(before.get(t * width + i) - mean, 2.0);
            }
            const double cutoff =
                mean + deviations * std::sqrt(squares / static_cast<double>(width));
            for (std::int64_t i = 0; i < width; ++i) {
              const double e = std::max(before.get(t * width + i) - cutoff, 0.0);
              const double bound = dtype == DType::bf16 ? 0.00391 : 2e-6;
              REQUIRE(std::fabs(x.get(t * width + i) - e) <= bound * e + 4e-6);
            }
          }
        }
      }
    }
  }

  TEST_CASE("a row's bits do not depend on other rows or on threads; NaN does not vanish") {
    Queue one = test_queue(best_isa(), 1), three = test_queue(best_isa(), 3);
    TestTensor all = random_tensor(DType::bf16, {9, 130}, 1);
    const TestTensor rows = all;
    sparse_gate(three, {.x = all, .deviations = 1.0F});
    for (std::int64_t t = 9; t-- > 0;) {
      sparse_gate(one, {.x = rows.view().rows(t, 1), .deviations = 1.0F});
    }
    CHECK(same_bytes(all, rows));
    all.set(7, NAN);
    sparse_gate(one, {.x = all, .deviations = 1.0F});
    for (std::int64_t i = 0; i < 130; ++i) REQUIRE(std::isnan(all.get(i)));
    CHECK(!std::isnan(all.get(130)));
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    CHECK_THROWS_AS(sparse_gate(queue, {.x = {}, .deviations = 1.0F}), Error);
  }
}

}  // namespace sparse_gate_test
