#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/linear/gguf_blocks.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/pack.h"
#include "tests/kernels/linear/gguf_stored.h"
#include "tests/kernels/support.h"

namespace gguf_panels_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr GgufType all_types[] = {
    GgufType::q4_0,  GgufType::q4_1,  GgufType::q5_0, GgufType::q5_1,   GgufType::q8_0,
    GgufType::q2_k,  GgufType::q3_k,  GgufType::q4_k, GgufType::q5_k,   GgufType::q6_k,
    GgufType::tq1_0, GgufType::tq2_0, GgufType::q1_0, GgufType::iq4_nl, GgufType::iq4_xs,
    GgufType::mxfp4, GgufType::q2_0,  GgufType::nvfp4};

/// The largest distance of y from x times a weight's rows, in units of what f32 allows: of sums of
/// products, and of as many of a minimum with x.
double worst_error(const TestTensor& y, const TestTensor& x, const Stored& w, std::int64_t first,
                   std::int64_t outputs, double scale) {
  double worst = 0;
  const std::int64_t rows = y.view().dim(0);
  for (std::int64_t n = 0; n < outputs; ++n) {
    const std::vector<float> values = w.row(first + n);
    float largest = 0.0F;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    for (std::int64_t t = 0; t < rows; ++t) {
      double sum = 0, sizes = 0;
      for (std::int64_t k = 0; k < w.columns; ++k) {
        const auto number = static_cast<double>(x.get(t * w.columns + k));
        sum += number * static_cast<double>(values[static_cast<std::size_t>(k)]);
        sizes += std::fabs(number) * static_cast<double>(largest);
      }
      const double bound = static_cast<double>(w.columns + 4) * 0x1p-22 * scale * sizes;
      worst = std::max(worst, std::fabs(y.get(t * outputs + n) - scale * sum) / bound);
    }
  }
  return worst;
}

}  // namespace

TEST_SUITE("kernels/linear/gguf_panels") {
  TEST_CASE("a packed weight has the numbers of its blocks, bit for bit, in their bytes") {
    Queue queue = test_queue(best_isa(), 2);
    for (const GgufType type : all_types) {
      CAPTURE(block_of(type).name);
      const Stored stored(type, 2, 70, 512, 1);
      const Weight weight = Weight::pack(queue, stored.source, DType::bf16, Quantize::q4);
      const bool is_packed = type != GgufType::nvfp4;
      CHECK(weight.code() == (type == GgufType::mxfp4 ? WeightCode::mxfp4
                              : is_packed             ? WeightCode::blocks
                                                      : WeightCode::plain));
      std::vector<float> row(512);
      std::size_t wrong = 0;
      for (std::int64_t n = 0; n < 140; ++n) {
        weight.read_row(n / 70, n % 70, row);
        for (std::size_t k = 0; k < row.size(); ++k) {
          const float value = stored.row(n)[k];
          wrong += row[k] != (is_packed ? value : to_float(to_bf16(value)));
        }
      }
      CHECK(wrong == 0);
      const double whole = static_cast<double>(stored.bytes.size()) * 128 / 70;
      if (block_of(type).bytes * 8 > 4 * block_of(type).elements && is_packed) {
        CHECK(static_cast<double>(weight.owned_bytes()) <= 1.03 * whole);
        CHECK(static_cast<double>(weight.owned_bytes()) >= whole);
      }
      const Weight exact = Weight::pack(queue, stored.source, DType::f32);
      exact.read_row(1, 69, row);
      CHECK(row == stored.row(139));
    }
  }

  TEST_CASE("every route gives the product of the blocks' numbers, whatever the rows") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      for (const GgufType type : all_types) {
        for (const std::int64_t rows : {1, 3, 8, 17, 64, 300}) {
          const bool is_long = rows == 3 || rows == 17;
          const std::int64_t elements = block_of(type).elements;
          const std::int64_t columns = is_long          ? 2304
                                       : elements < 256 ? 288 / elements * elements
                                                        : 256;
          const std::int64_t outputs = rows == 300 ? 7 : 70;
          CAPTURE(kernels::testing::name_of(isa));
          CAPTURE(block_of(type).name);
          CAPTURE(rows);
          if (type == GgufType::nvfp4) continue;
          const Stored stored(type, 1, outputs, columns, 2);
          const Weight weight = Weight::pack(queue, stored.source, DType::bf16);
          const TestTensor x = random_tensor(DType::bf16, {rows, columns}, 3);
          TestTensor y(DType::f32, {rows, outputs});
          linear(queue, {.x = x, .weight = &weight, .y = y, .scale = 0.75F});
          CHECK(worst_error(y, x, stored, 0, outputs, 0.75) <= 1.0);
        }
      }
    }
  }

  TEST_CASE("a row's answer is the same bits alone and among others, on any threads") {
    for (const Isa isa : available_isas()) {
      for (const GgufType type : all_types) {
        CAPTURE(kernels::testing::name_of(isa));
        CAPTURE(block_of(type).name);
        Queue one = test_queue(isa, 1), three = test_queue(isa, 3);
        const Stored stored(type, 1, 130, 1280, 4);
        const Weight weight = Weight::pack(one, stored.source, DType::bf16);
        const TestTensor x = random_tensor(DType::bf16, {50, 1280}, 5);
        TestTensor whole(DType::bf16, {50, 130}), cut(DType::bf16, {50, 130});
        linear(one, {.x = x, .weight = &weight, .y = whole});
        for (std::int64_t begin = 0, count = 1; begin < 50; begin += count, ++count) {
          count = std::min(count, 50 - begin);
          linear(three, {.x = x.view().rows(begin, count),
                         .weight = &weight,
                         .y = cut.view().rows(begin, count)});
        }
        CHECK(same_bytes(whole, cut));
      }
    }
  }

  TEST_CASE("each expert has its own matrix") {
    Queue queue = test_queue(best_isa(), 2);
    for (const GgufType type : {GgufType::q4_k, GgufType::q6_k, GgufType::q8_0}) {
      const Stored stored(type, 3, 70, 256, 6);
      const Weight weight = Weight::pack(queue, stored.source, DType::bf16);
      const TestTensor x = random_tensor(DType::bf16, {4, 256}, 7);
      for (std::int64_t e = 0; e < 3; ++e) {
        TestTensor y(DType::f32, {4, 70});
        linear(queue, {.x = x, .weight = &weight, .expert = e, .y = y});
        CHECK(worst_error(y, x, stored, e * 70, 70, 1.0) <= 1.0);
      }
    }
  }

  TEST_CASE("rows of several types are one weight, each as it is alone") {
    Queue queue = test_queue(best_isa(), 2);
    const Stored q(GgufType::q4_k, 1, 100, 512, 8), v(GgufType::q6_k, 1, 30, 512, 9);
    std::vector<float> plain(std::size_t{3} * 512, 0.5F);
    WeightSource all(1, 163, 512);
    all.append(q.source, 0, 100, 1);
    all.append(q.source, 0, 30);
    all.append(v.source, 0, 30);
    all.append(DType::f32, 3, std::as_bytes(std::span(plain)));
    const Weight weight = Weight::pack(queue, all, DType::bf16);
    REQUIRE(weight.parts().size() == 3);
    CHECK(weight.parts()[0].rows() == 130);
    CHECK(weight.parts()[1].type() == GgufType::q6_k);
    CHECK(weight.parts()[2].code() == WeightCode::plain);
    CHECK(weight.owned_bytes() == weight.parts()[0].owned_bytes() +
                                      weight.parts()[1].owned_bytes() +
                                      weight.parts()[2].owned_bytes());
    std::vector<float> row(512);
    weight.read_row(0, 131, row);
    CHECK(row == v.row(1));
    const TestTensor x = random_tensor(DType::bf16, {9, 512}, 10);
    const TestTensor bias = random_tensor(DType::f32, {163}, 11);
    TestTensor y = random_tensor(DType::f32, {9, 163}, 12);
    TestTensor expected = random_tensor(DType::f32, {9, 163}, 12);
    linear(queue, {.x = x, .weight = &weight, .y = y, .scale = 0.5F, .add = true, .bias = bias});
    std::int64_t first = 0;
    for (const Weight& part : weight.parts()) {
      TestTensor own(DType::f32, {part.rows()});
      for (std::int64_t n = 0; n < part.rows(); ++n) own.set(n, bias.get(first + n));
      linear(queue, {.x = x,
                     .weight = &part,
                     .y = expected.view().columns(first, part.rows()),
                     .scale = 0.5F,
                     .add = true,
                     .bias = own});
      first += part.rows();
    }
    CHECK(same_bytes(y, expected));
  }

  TEST_CASE("sources of blocks are checked") {
    const std::vector<std::byte> bytes(144 * 2);
    CHECK_NOTHROW(WeightSource(block_of(GgufType::q4_k), 1, 2, 256, bytes));
    CHECK_THROWS_AS(WeightSource(block_of(GgufType::q4_k), 1, 3, 256, bytes), Error);
    CHECK_THROWS_AS(WeightSource(block_of(GgufType::q4_k), 1, 2, 255, bytes), Error);
    CHECK_THROWS_AS(WeightSource(block_of(GgufType::iq3_s), 1, 2, 256, bytes), Error);
  }
}

}  // namespace gguf_panels_test
