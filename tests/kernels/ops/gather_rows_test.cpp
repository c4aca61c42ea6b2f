#include "kernels/ops/gather_rows.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/ops/gather_rows") {
  TEST_CASE("rows are those that the table names, byte for byte, and nothing else is written") {
    const Table rows{4, 0, 4, 2, 69, 1};
    for (const int threads : {1, 3}) {
      Queue queue = test_queue(best_isa(), threads);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t width : {1, 33, 4096}) {
          const TestTensor x = random_tensor(dtype, {70, width}, 1, 1.0F, {3, 1});
          TestTensor y(dtype, {6, width}, {5, 2});
          gather_rows(queue, {.x = x, .rows = rows, .y = y});
          for (std::int64_t i = 0; i < 6 * width; ++i) {
            const std::int64_t row = rows.values()[static_cast<std::size_t>(i / width)];
            REQUIRE(y.get(i) == x.get(row * width + i % width));
          }
          CHECK(y.guards_intact());
        }
      }
    }
  }

  TEST_CASE("a row that is not there is an error before anything is written") {
    Queue queue = test_queue(best_isa());
    const TestTensor x = random_tensor(DType::f32, {5, 8}, 2);
    for (const std::int32_t bad : {-1, 5, INT32_MAX}) {
      const Table rows{1, bad};
      TestTensor y(DType::f32, {2, 8});
      CHECK_THROWS_AS(gather_rows(queue, {.x = x, .rows = rows, .y = y}), Error);
      for (const float value : y.values()) CHECK(value == 0.0F);
    }
  }
}
