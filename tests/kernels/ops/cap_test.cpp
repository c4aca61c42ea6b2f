#include "kernels/ops/cap.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/kernels/support.h"

namespace cap_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/ops/cap") {
  TEST_CASE("is the definition on every route, whatever the threads, and leaves the rest alone") {
    for (const Isa isa : available_isas()) {
      for (const std::int64_t width : {std::int64_t{1}, std::int64_t{19}, std::int64_t{5003}}) {
        CAPTURE(name_of(isa));
        const auto before = random_tensor(DType::f32, {3, width}, 1, 80.0F, {5, 2});
        TestTensor alone = before, shared = before;
        Queue one = test_queue(isa, 1), three = test_queue(isa, 3);
        cap(one, {.x = alone, .cap = 30.0F});
        cap(three, {.x = shared, .cap = 30.0F});
        CHECK(alone.guards_intact());
        CHECK(same_bytes(alone, shared));
        for (std::int64_t i = 0; i < before.size(); ++i) {
          REQUIRE(std::fabs(alone.get(i) - 30.0 * std::tanh(before.get(i) / 30.0)) <= 6e-6);
        }
      }
    }
  }

  TEST_CASE("NaN stays NaN, an infinite logit becomes the cap") {
    for (const Isa isa : available_isas()) {
      TestTensor x(DType::f32, {1, 3});
      x.set(0, std::nanf(""));
      x.set(1, HUGE_VALF);
      x.set(2, -HUGE_VALF);
      Queue queue = test_queue(isa, 1);
      cap(queue, {.x = x, .cap = 2.0F});
      CHECK(std::isnan(x.get(0)));
      CHECK(x.get(1) == 2.0F);
      CHECK(x.get(2) == -2.0F);
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {2, 3}), half(DType::bf16, {2, 3});
    CHECK_THROWS_WITH_AS(cap(queue, {.x = x}), "cap: cap is above 0, got 0", Error);
    CHECK_THROWS_AS(cap(queue, {.x = half, .cap = 1.0F}), Error);
  }
}

}  // namespace cap_test
