#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_product.h"
#include "tests/kernels/linear/coded_weights.h"
#include "tests/kernels/support.h"

namespace panel_product_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t rows, outputs, columns;  // T, N, K
};

/// Sizes around the edges of eights, groups, runs, panels and tiles of rows.
constexpr Shape shapes[] = {{1, 1, 1},     {1, 64, 8},    {2, 65, 31},    {3, 63, 33},
                            {6, 130, 68},  {7, 20, 157},  {13, 70, 128},  {50, 65, 260},
                            {4, 64, 2057}, {9, 66, 1025}, {200, 10, 1100}};

/// How far y is from the exact product with the weight's own numbers, in units of linear's bound.
double worst_error(const TestTensor& y, const TestTensor& x, const CodedMatrix& w, const Shape& s,
                   double scale) {
  const std::vector<float> values = w.values();
  double worst = 0;
  for (std::int64_t t = 0; t < s.rows; ++t) {
    for (std::int64_t n = 0; n < s.outputs; ++n) {
      double sum = 0, sizes = 0;
      for (std::int64_t k = 0; k < s.columns; ++k) {
        const double product =
            static_cast<double>(x.get(t * s.columns + k)) *
            static_cast<double>(values[static_cast<std::size_t>(n * s.columns + k)]);
        sum += product;
        sizes += std::fabs(product);
      }
      const double rounding = y.view().dtype == DType::bf16 ? 0x1p-8 : 0x1p-23;
      const double bound = static_cast<double>(s.columns + 4) * 0x1p-23 * scale * sizes;
      const double error = std::fabs(y.get(t * s.outputs + n) - scale * sum);
      const double allowed = bound + rounding * (std::fabs(scale * sum) + bound) + 1e-37;
      worst = std::max(worst, std::isnan(error) ? INFINITY : error / allowed);
    }
  }
  return worst;
}

}  // namespace

TEST_SUITE("kernels/linear/coded_product") {
  TEST_CASE("every route gives the answer of the weight's own numbers, within linear's bound") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      for (const WeightCode code : all_codes) {
        for (const Shape& s : shapes) {
          for (const bool blocks : {false, true}) {
            if (blocks && code != WeightCode::fp8) continue;
            CAPTURE(kernels::testing::name_of(isa));
            CAPTURE(kernels::testing::name_of(code));
            CAPTURE(s.rows);
            CAPTURE(s.columns);
            const CodedMatrix w(queue, code, 1, s.outputs, s.columns, 3, blocks);
            REQUIRE(w.weight.code() == code);
            const TestTensor x = random_tensor(DType::bf16, {s.rows, s.columns}, 4, 1.0F, {3, 1});
            for (const DType out : {DType::f32, DType::bf16}) {
              TestTensor y = random_tensor(out, {s.rows, s.outputs}, 5, 1.0F, {5, 3});
              const auto x_bytes = x.everything();
              linear(queue, {.x = x, .weight = &w.weight, .y = y, .scale = 0.75F});
              CHECK(worst_error(y, x, w, s, 0.75) <= 1.0);
              CHECK(y.guards_intact());
              CHECK(x.everything() == x_bytes);
            }
          }
        }
      }
    }
  }

  TEST_CASE("a row's answer is the same bits alone, among others, in any order, on any threads") {
    for (const Isa isa : available_isas()) {
      for (const WeightCode code : all_codes) {
        for (const Shape s : {Shape{67, 200, 77}, Shape{250, 65, 130}, Shape{31, 70, 2300}}) {
          CAPTURE(kernels::testing::name_of(isa));
          CAPTURE(kernels::testing::name_of(code));
          CAPTURE(s.columns);
          Queue one = test_queue(isa, 1);
          const CodedMatrix w(one, code, 1, s.outputs, s.columns, 6, s.columns != 130);
          const TestTensor x = random_tensor(DType::bf16, {s.rows, s.columns}, 7);
          TestTensor whole(DType::bf16, {s.rows, s.outputs});
          linear(one, {.x = x, .weight = &w.weight, .y = whole});
          std::mt19937 engine(8);
          for (const int threads : {1, 3}) {
            Queue queue = test_queue(isa, threads);
            for (int repeat = 0; repeat < 2; ++repeat) {
              TestTensor cut(DType::bf16, {s.rows, s.outputs}, {7, 1});
              const auto begins = random_cuts(static_cast<std::int32_t>(s.rows), engine);
              for (std::size_t i = begins.size() - 1; i-- > 0;) {
                const std::int64_t count = begins[i + 1] - begins[i];
                linear(queue, {.x = x.view().rows(begins[i], count),
                               .weight = &w.weight,
                               .y = cut.view().rows(begins[i], count)});
              }
              CHECK(same_bytes(whole, cut));
              CHECK(cut.guards_intact());
            }
          }
        }
      }
    }
  }

  TEST_CASE("each expert has its own matrix") {
    Queue queue = test_queue(best_isa(), 2);
    for (const WeightCode code : all_codes) {
      CAPTURE(kernels::testing::name_of(code));
      const CodedMatrix all(queue, code, 3, 70, 40, 13, false);
      const TestTensor x = random_tensor(DType::bf16, {4, 40}, 14);
      for (std::int64_t e = 0; e < 3; ++e) {
        WeightSource own(1, 70, 40);
        own.append(all.published.source, e * 70, 70);
        const Weight one = Weight::pack(queue, own, DType::bf16,
                                        code == WeightCode::q8   ? Quantize::q8
                                        : code == WeightCode::q4 ? Quantize::q4
                                                                 : Quantize::none);
        TestTensor y(DType::bf16, {4, 70}), expected(DType::bf16, {4, 70});
        linear(queue, {.x = x, .weight = &all.weight, .expert = e, .y = y});
        linear(queue, {.x = x, .weight = &one, .y = expected});
        CHECK(same_bytes(y, expected));
      }
    }
  }

  TEST_CASE("published groups are kept in their bytes, and every route multiplies their numbers") {
    struct Format {
      DType type, scales;
      bool has_zeros;
      std::int64_t group, columns;
      double bits;  // of a number, with its share of scales
      bool is_shuffled = false;
    };
    constexpr std::int64_t outputs = 70, rows_max = 40;
    for (const Format& format : {Format{DType::u8, DType::bf16, false, 32, 96, 4.5},
                                 Format{DType::u8, DType::f16, true, 128, 256, 4.1875},
                                 Format{DType::u8, DType::bf16, true, 64, 2048, 4.375},
                                 Format{DType::u8, DType::f32, true, 24, 72, 9},
                                 Format{DType::u8, DType::bf16, false, 2304, 2304, 4.03},
                                 Format{DType::u8, DType::f8_e4m3, false, 16, 1056, 4.54},
                                 Format{DType::i8, DType::bf16, false, 320, 320, 8.05},
                                 Format{DType::i8, DType::f32, true, 128, 128, 8.3125},
                                 Format{DType::u8, DType::f16, true, 128, 2176, 4.1875, true},
                                 Format{DType::u8, DType::f32, false, 24, 72, 9, true},
                                 Format{DType::i8, DType::bf16, true, 64, 192, 8.4, true}}) {
      CAPTURE(hyb::name_of(format.type));
      CAPTURE(hyb::name_of(format.scales));
      CAPTURE(format.group);
      GroupedMatrix matrix(format.type, format.scales, format.has_zeros, format.group, 1, outputs,
                           format.columns, 3);
      if (format.is_shuffled) matrix.shuffle(7);
      const TestTensor x = random_tensor(DType::bf16, {rows_max, format.columns}, 4);
      for (const Isa isa : available_isas()) {
        CAPTURE(kernels::testing::name_of(isa));
        Queue queue = test_queue(isa, 2);
        const Weight weight = Weight::pack(queue, matrix.source, DType::bf16, Quantize::q4);
        REQUIRE(weight.code() == WeightCode::groups);
        const auto numbers = static_cast<double>(128 * format.columns);  // of two panels
        const std::size_t order = weight.order(0).size_bytes();
        CHECK(order == (format.is_shuffled ? static_cast<std::size_t>(format.columns) * 4 : 0));
        CHECK(static_cast<double>(weight.owned_bytes() - order) * 8 <= numbers * format.bits);
        TestTensor y(DType::f32, {rows_max, outputs}), alone(DType::f32, {rows_max, outputs});
        linear(queue, {.x = x, .weight = &weight, .y = y});
        for (std::int64_t t = 0, count = 1; t < rows_max; t += count, count = count % 7 + 2) {
          count = std::min(count, rows_max - t);
          linear(
              queue,
              {.x = x.view().rows(t, count), .weight = &weight, .y = alone.view().rows(t, count)});
        }
        CHECK(same_bytes(y, alone));
        double worst = 0;
        std::vector<float> read(static_cast<std::size_t>(format.columns));
        for (std::int64_t n = 0; n < outputs; ++n) {
          const std::vector<float> values = matrix.row(n);
          weight.read_row(0, n, read);
          double largest = 0, worst_value = 0;
          for (std::size_t k = 0; k < values.size(); ++k) {
            const auto value = static_cast<double>(values[k]);
            largest = std::max(largest, std::fabs(value));
            worst_value = std::max(worst_value, std::fabs(static_cast<double>(read[k]) - value));
          }
          CHECK(worst_value <= (format.has_zeros ? largest * 0x1p-20 : 0.0));
          for (std::int64_t t = 0; t < rows_max; ++t) {
            double sum = 0, sizes = 0;
            for (std::int64_t k = 0; k < format.columns; ++k) {
              const auto number = static_cast<double>(x.get(t * format.columns + k));
              sum += number * static_cast<double>(values[static_cast<std::size_t>(k)]);
              sizes += std::fabs(number) * largest;
            }
            const double bound = static_cast<double>(format.columns + 4) * 0x1p-22 * sizes;
            worst = std::max(worst, std::fabs(y.get(t * outputs + n) - sum) / bound);
          }
        }
        CHECK(worst <= 1.0);
      }
    }
  }

  TEST_CASE("rows of several matrices in groups are one weight, and each expert has its own") {
    Queue queue = test_queue(best_isa(), 2);
    const GroupedMatrix a(DType::u8, DType::bf16, true, 128, 1, 40, 256, 5);
    const GroupedMatrix b(DType::u8, DType::f16, false, 32, 1, 40, 256, 6);
    WeightSource both(2, 40, 256);
    both.append(b.source, 20, 20);
    both.append(a.source, 0, 20, 2);
    both.append(a.source, 0, 40);
    const Weight weight = Weight::pack(queue, both, DType::bf16);
    REQUIRE(weight.code() == WeightCode::groups);
    CHECK(weight.group() == 32);
    std::vector<float> row(256);
    const auto is_row = [&](std::int64_t e, std::int64_t n, const GroupedMatrix& of,
                            std::int64_t from) {
      weight.read_row(e, n, row);
      const std::vector<float> values = of.row(from);
      for (std::size_t k = 0; k < row.size(); ++k) {
        CHECK(row[k] == doctest::Approx(values[k]).epsilon(1e-6));
      }
    };
    is_row(0, 3, b, 23);
    is_row(0, 23, a, 6);
    is_row(1, 39, a, 39);
    // With numbers of another kind they are plain.
    const std::vector<float> plain(256, 0.5F);
    WeightSource mixed(1, 41, 256);
    mixed.append(a.source, 0, 40);
    mixed.append(DType::f32, 1, std::as_bytes(std::span(plain)));
    CHECK(Weight::pack(queue, mixed, DType::bf16).code() == WeightCode::plain);
    CHECK(Weight::pack(queue, a.source, DType::f32).code() == WeightCode::plain);
  }

  TEST_CASE("matrices with their columns in groups in several orders are parts, or experts") {
    Queue queue = test_queue(best_isa(), 2);
    GroupedMatrix a(DType::u8, DType::bf16, true, 32, 1, 40, 128, 5);
    GroupedMatrix b(DType::u8, DType::bf16, false, 32, 1, 40, 128, 6);
    const GroupedMatrix c(DType::u8, DType::bf16, false, 32, 1, 40, 128, 6);
    a.shuffle(1);
    b.shuffle(2);
    const auto joined = [&](std::int64_t experts, std::int64_t rows) {
      WeightSource all(experts, rows, 128);
      for (const auto* each : std::initializer_list<const GroupedMatrix*>{&a, &b, &c})
        all.append(each->source, 0, 40);
      return all;
    };
    const Weight parts = Weight::pack(queue, joined(1, 120), DType::bf16);
    const Weight experts = Weight::pack(queue, joined(3, 40), DType::bf16);
    REQUIRE(parts.parts().size() == 3);
    for (const Weight& part : parts.parts()) CHECK(part.code() == WeightCode::groups);
    REQUIRE(experts.code() == WeightCode::groups);
    const TestTensor x = random_tensor(DType::bf16, {5, 128}, 4);
    TestTensor y(DType::f32, {5, 120});
    linear(queue, {.x = x, .weight = &parts, .y = y});
    for (std::int64_t e = 0; e < 3; ++e) {
      TestTensor own(DType::f32, {5, 40});
      linear(queue, {.x = x, .weight = &experts, .expert = e, .y = own});
      for (std::int64_t i = 0; i < 5 * 40; ++i) {
        // Minima, which `a` alone has as a part, are summed apart.
        CHECK(own.get(i) == doctest::Approx(y.get(i / 40 * 120 + e * 40 + i % 40)).epsilon(1e-4));
      }
    }
    // One expert of rows in two orders cannot be kept so.
    WeightSource mixed(2, 40, 128);
    for (const GroupedMatrix* each : {&a, &b, &b, &a}) mixed.append(each->source, 0, 20);
    CHECK(Weight::pack(queue, mixed, DType::bf16).code() == WeightCode::plain);
  }

  TEST_CASE("infinity and NaN in x and in scales reach y, and stay in their row or column") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 1);
      for (const WeightCode code : all_codes) {
        CAPTURE(kernels::testing::name_of(isa));
        CAPTURE(kernels::testing::name_of(code));
        PublishedMatrix published(code == WeightCode::fp8     ? DType::f8_e4m3
                                  : code == WeightCode::mxfp4 ? DType::u8
                                                              : DType::bf16,
                                  1, 10, 40, 1, 40, 15);
        if (code == WeightCode::fp8) {
          published.scales[4] = NAN;
        } else if (code == WeightCode::mxfp4) {
          published.mxfp4_scales[4 * 2 + 1] = std::byte{255};
        } else {
          published.bytes[(4 * 40 + 35) * 2 + 1] = std::byte{0x7f};  // bf16 0x7f80 and above
          published.bytes[(4 * 40 + 35) * 2] |= std::byte{0x81};
        }
        const Weight weight = Weight::pack(queue, published.source, DType::bf16,
                                           code == WeightCode::q8   ? Quantize::q8
                                           : code == WeightCode::q4 ? Quantize::q4
                                                                    : Quantize::none);
        for (const std::int64_t rows : {4, 9}) {
          TestTensor x = random_tensor(DType::bf16, {rows, 40}, 16);
          x.set(1 * 40 + 39, INFINITY);
          x.set(2 * 40 + 0, NAN);
          TestTensor y(DType::f32, {rows, 10});
          linear(queue, {.x = x, .weight = &weight, .y = y});
          for (std::int64_t n = 0; n < 10; ++n) {
            CHECK(std::isfinite(y.get(n)) == (n != 4));
            CHECK(!std::isfinite(y.get(10 + n)));
            CHECK(std::isnan(y.get(20 + n)));
            CHECK(std::isnan(y.get(30 + n)) == (n == 4));
          }
        }
      }
    }
  }
}

}  // namespace panel_product_test
