#include "kernels/ops/scale_columns.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/kernels/support.h"

namespace scale_columns_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/ops/scale_columns") {
  TEST_CASE("every segment has its factor, rounded once") {
    const std::vector<ColumnSegment> segments = {{3, 0.5F}, {1, -1.7F}, {13, 3.1F}, {2, 0.0F}};
    constexpr std::int64_t tokens = 5, width = 19;
    for (const DType type : {DType::f32, DType::bf16}) {
      Queue queue = test_queue(best_isa(), 2);
      const TestTensor before = random_tensor(type, {tokens, width}, 1, 2.0F, {3, 1});
      TestTensor x = before;
      scale_columns(queue, {.x = x, .segments = segments});
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::int64_t column = 0;
        for (const ColumnSegment& segment : segments) {
          for (std::int64_t i = 0; i < segment.columns; ++i, ++column) {
            const float product = before.get(t * width + column) * segment.factor;
            TestTensor rounded(type, {1, 1});
            rounded.set(0, product);
            CHECK(x.get(t * width + column) == rounded.get(0));
          }
        }
      }
      CHECK(x.guards_intact());
    }
  }

  TEST_CASE("segments that are not all of the columns are errors") {
    Queue queue = test_queue(best_isa(), 1);
    const TestTensor x(DType::f32, {2, 5});
    const auto scale = [&](const std::vector<ColumnSegment>& segments) {
      scale_columns(queue, {.x = x, .segments = segments});
    };
    CHECK_NOTHROW(scale({{2, 1.0F}, {3, 1.0F}}));
    CHECK_THROWS_AS(scale({{2, 1.0F}, {2, 1.0F}}), Error);
    CHECK_THROWS_AS(scale({{5, 1.0F}, {1, 1.0F}}), Error);
    CHECK_THROWS_AS(scale({{0, 1.0F}, {5, 1.0F}}), Error);
    CHECK_THROWS_AS(scale({}), Error);
    CHECK_THROWS_AS(scale(std::vector<ColumnSegment>(9, {1, 1.0F})), Error);
  }
}

}  // namespace scale_columns_test
