#include "kernels/random_numbers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/linear/pack.h"
#include "kernels/weight.h"
#include "tests/kernels/support.h"

namespace random_numbers_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr WeightCode codes[] = {WeightCode::fp8, WeightCode::q8, WeightCode::q4, WeightCode::mxfp4};

constexpr int count_of(WeightCode code) { return has_nibbles(code) ? 16 : 256; }

/// 1, 1 + 1/37, ... times powers of two, as far apart as widths of models are.
std::vector<float> reaches() {
  std::vector<float> all;
  for (int power = -8; power <= 1; ++power) {
    for (int i = 0; i < 37; ++i) {
      all.push_back(std::ldexp(1.0F + static_cast<float>(i) / 37, power));
    }
    all.push_back(std::nextafter(std::ldexp(1.0F, power + 1), 0.0F));
  }
  return all;
}

/// Rows of two tensors in another order.
WeightSource stacked(std::int64_t rows, std::int64_t columns, DType dtype) {
  const WeightSource first(RandomNumbers{.stream = 7, .reach = 0.25F, .dtype = dtype}, 1, rows,
                           columns),
      second(RandomNumbers{.stream = 70, .reach = 0.3F, .dtype = dtype}, 1, rows, columns);
  WeightSource all(2, rows, columns);
  all.append(first, rows / 2, rows - rows / 2);
  all.append(second, 0, rows);
  all.append(first, 0, rows / 2);
  return all;
}

}  // namespace

TEST_SUITE("kernels/random_numbers") {
  TEST_CASE("numbers are nearly normal, and of 16 neighbouring exponents from the first on") {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const float reach : reaches()) {
        CAPTURE(reach);
        const RandomNumbers numbers = {.stream = 5, .reach = reach, .dtype = dtype};
        const std::uint32_t first = random_exponent(numbers);
        for (const std::int32_t drawn :
             {4, -4, 12, 100, -4092, 65532, nearly_normal_most, -nearly_normal_most}) {
          const std::uint32_t exponent = to_bf16(numbers.of(drawn)).bits >> 7 & 255U;
          CHECK(exponent >= first);
          CHECK(exponent < first + 16);
        }
      }
    }
    const RandomNumbers numbers = {.stream = 5, .reach = 0.5F};
    double sum = 0, squares = 0;
    constexpr int count = 100000;
    for (int i = 0; i < count; ++i) {
      REQUIRE(std::abs(numbers.drawn(i)) >= 4);
      REQUIRE(std::abs(numbers.drawn(i)) <= nearly_normal_most);
      sum += numbers[i];
      squares += numbers[i] * numbers[i];
    }
    CHECK(std::abs(sum / count) < 0.005);
    CHECK(std::abs(std::sqrt(squares / count) / (0.5 / std::sqrt(3.0)) - 1) < 0.01);
  }

  TEST_CASE("a code is the one of the nearest level") {
    for (const WeightCode code : codes) {
      CAPTURE(static_cast<int>(code));
      for (float value = -131.0F; value < 131.0F; value += 0.173F) {
        const float found = level_of(code, nearest_code(code, value));
        float nearest = level_of(code, 0);
        for (int i = 1; i < count_of(code); ++i) {
          const float level = level_of(code, static_cast<std::uint8_t>(i));
          if (std::abs(level - value) < std::abs(nearest - value)) nearest = level;
        }
        REQUIRE(std::abs(found - value) == std::abs(nearest - value));
      }
    }
  }

  TEST_CASE("in codes they are the same numbers nearly, from products that are exact") {
    for (const WeightCode code : codes) {
      CAPTURE(static_cast<int>(code));
      const double most = code == WeightCode::q8    ? 0.01
                          : code == WeightCode::fp8 ? 0.04
                          : code == WeightCode::q4  ? 0.11
                                                    : 0.14;
      for (const float reach : reaches()) {
        CAPTURE(reach);
        const RandomNumbers numbers = {.stream = 5, .reach = reach};
        const RandomCoding coding = random_coding(code, reach);
        double error = 0, squares = 0;
        for (int i = 0; i < 500; ++i) {
          const std::int32_t drawn = numbers.drawn(i);
          REQUIRE(static_cast<double>(coding.unit * static_cast<float>(drawn)) ==
                  static_cast<double>(coding.unit) * drawn);
          const double value = coding.scale * level_of(code, random_code(code, coding, drawn));
          error += (value - numbers[i]) * (value - numbers[i]);
          squares += numbers[i] * numbers[i];
        }
        CHECK(std::sqrt(error / squares) < most);
      }
    }
  }

  TEST_CASE("a weight in codes has their levels and scales, whatever the rows and the threads") {
    for (const std::int64_t columns : {1, 31, 64, 200, 300}) {
      CAPTURE(columns);
      constexpr std::int64_t rows = 70;
      for (const WeightCode code : codes) {
        CAPTURE(static_cast<int>(code));
        const DType dtype = code == WeightCode::fp8     ? DType::f8_e4m3
                            : code == WeightCode::mxfp4 ? DType::u8
                                                        : DType::bf16;
        const Quantize quantize = code == WeightCode::q8   ? Quantize::q8
                                  : code == WeightCode::q4 ? Quantize::q4
                                                           : Quantize::none;
        const WeightSource source = stacked(rows, columns, dtype);
        Queue one = test_queue(best_isa(), 1), three = test_queue(best_isa(), 3);
        const Weight weight = Weight::pack(one, source, DType::bf16, quantize);
        const Weight again = Weight::pack(three, source, DType::bf16, quantize);
        REQUIRE(weight.code() == code);
        CHECK(
            std::equal(weight.expert(0), weight.expert(0) + weight.owned_bytes(), again.expert(0)));
        std::vector<float> row(static_cast<std::size_t>(columns));
        for (std::int64_t r = 0; r < 2 * rows; ++r) {
          weight.read_row(r / rows, r % rows, row);
          const RandomNumbers numbers = source.row(r).random.value();
          const RandomCoding coding = random_coding(code, numbers.reach);
          for (std::int64_t k = 0; k < columns; ++k) {
            const std::uint8_t bits = random_code(code, coding, numbers.drawn(k));
            REQUIRE(row[static_cast<std::size_t>(k)] == level_of(code, bits) * coding.scale);
          }
          if (dtype != DType::bf16) REQUIRE(row[0] == published_value(source.row(r), 0));
        }
      }
    }
  }
}

}  // namespace random_numbers_test
