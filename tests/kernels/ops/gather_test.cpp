#include <vector>

#include <doctest/doctest.h>

#include "kernels/ops/gather.h"
#include "tests/kernels/support.h"

namespace ops_gather_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/ops/embed") {
  TEST_CASE("rows are those of the matrix, scaled and rounded once, from every format") {
    constexpr std::int64_t vocab = 200, width = 131;
    const Table tokens(std::vector<std::int32_t>{0, 199, 64, 63, 64, 65, 128, 7, 7, 190});
    const std::int64_t count = 10;
    for (const int threads : {1, 3}) {
      Queue queue = test_queue(best_isa(), threads);
      for (const DType from : {DType::f32, DType::bf16}) {
        const TestTensor matrix = random_tensor(from, {vocab, width}, 1);
        const auto bytes = matrix.packed();
        const WeightSource source = {from, 1, vocab, width, bytes};
        for (const DType to : {DType::f32, DType::bf16}) {
          for (const float scale : {1.0F, 12.0F, 0.3F}) {
            const Weight panels = Weight::pack(queue, source, from), rows = Weight::view(source);
            TestTensor a(to, {count, width}, {3, 1}), b(to, {count, width});
            embed(queue, {.weight = &panels, .tokens = tokens, .y = a, .scale = scale});
            embed(queue, {.weight = &rows, .tokens = tokens, .y = b, .scale = scale});
            CHECK(same_bytes(a, b));
            CHECK(a.guards_intact());
            int wrong = 0;
            for (std::int64_t t = 0; t < count; ++t) {
              const std::int64_t row = tokens.values()[static_cast<std::size_t>(t)];
              for (std::int64_t k = 0; k < width; ++k) {
                const float product = matrix.get(row * width + k) * scale;
                const float expected = to == DType::bf16 ? to_float(to_bf16(product)) : product;
                if (a.get(t * width + k) != expected) ++wrong;
              }
            }
            CHECK(wrong == 0);
          }
        }
      }
    }
  }

  TEST_CASE("a token outside of the vocabulary is an error before anything is written") {
    Queue queue = test_queue(best_isa(), 1);
    const TestTensor matrix = random_tensor(DType::f32, {5, 8}, 2);
    const auto bytes = matrix.packed();
    const Weight weight = Weight::view({DType::f32, 1, 5, 8, bytes});
    for (const std::int32_t bad : {-1, 5, INT32_MAX}) {
      const Table tokens(std::vector<std::int32_t>{1, bad});
      TestTensor y(DType::f32, {2, 8});
      CHECK_THROWS_AS(embed(queue, {.weight = &weight, .tokens = tokens, .y = y}), Error);
      for (const float value : y.values()) CHECK(value == 0.0F);
    }
  }
}

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

TEST_SUITE("kernels/ops/spread_columns") {
  TEST_CASE("columns lie where the table says, minus infinity elsewhere, nothing else is written") {
    const std::vector<std::int32_t> from = {3, -1, 0, -7, 4, 3};
    for (const int threads : {1, 3}) {
      Queue queue = test_queue(best_isa(), threads);
      const TestTensor x = random_tensor(DType::f32, {4, 5}, 1, 1.0F, {3, 1});
      TestTensor y(DType::f32, {4, 6}, {5, 2});
      spread_columns(queue, {.x = x, .from = Table(from), .y = y});
      for (std::int64_t i = 0; i < 4 * 6; ++i) {
        const std::int32_t column = from[static_cast<std::size_t>(i % 6)];
        REQUIRE(y.get(i) == (column < 0 ? -HUGE_VALF : x.get(i / 6 * 5 + column)));
      }
      CHECK(y.guards_intact());
    }
  }

  TEST_CASE("a column that is not there is an error before anything is written") {
    Queue queue = test_queue(best_isa());
    const TestTensor x = random_tensor(DType::f32, {2, 5}, 2);
    TestTensor y(DType::f32, {2, 2});
    CHECK_THROWS_AS(spread_columns(queue, {.x = x, .from = Table{1, 5}, .y = y}), Error);
    for (const float value : y.values()) CHECK(value == 0.0F);
  }
}

}  // namespace ops_gather_test
