#include "kernels/ops/add_norm.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

TEST_SUITE("kernels/ops/add_norm") {
  TEST_CASE("is the sum, rounded, and the norm of what was written") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const int threads : {1, 3}) {
          Queue queue = test_queue(isa, threads);
          const auto before = random_tensor(dtype, {37, 129}, 1, 3.0F, {5, 1});
          const auto added = random_tensor(dtype, {37, 129}, 2, 1.0F, {2, 1});
          const auto weight = random_tensor(DType::f32, {129}, 3);
          TestTensor x = before, y(dtype, {37, 129}, {7, 3}), sum = before, normed = y;
          add_norm(
              queue,
              {.x = x, .added = added, .weight = weight, .y = y, .scale = 0.22F, .one_plus = true});
          for (std::int64_t i = 0; i < sum.size(); ++i) {
            sum.set(i, before.get(i) + 0.22F * added.get(i));
          }
          rms_norm(queue, {.x = sum, .weight = weight, .y = normed, .one_plus = true});
          CHECK(x.everything() == sum.everything());
          CHECK(y.everything() == normed.everything());
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {2, 6}), weight(DType::f32, {6});
    CHECK_THROWS_WITH_AS(add_norm(queue, {.x = x, .added = x, .weight = weight, .y = x}),
                         "add_norm: y is neither x nor added, got 0", Error);
  }
}

}  // namespace
