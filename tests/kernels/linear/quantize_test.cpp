#include "kernels/linear/quantize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/linear/codes.h"

namespace quantize_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

using Values = std::vector<float>;  // [32][64]

constexpr std::size_t rows = quantize_rows, columns = quantize_group;

QuantizedGroups quantized(WeightCode code, const Values& values) {
  QuantizedGroups groups;
  quantize(code, values.data(), groups);
  return groups;
}

float value_of(WeightCode code, const QuantizedGroups& groups, std::size_t k, std::size_t n) {
  return level_of(code, groups.codes[k * rows + n]) * to_float(groups.scales[n]);
}

template <typename Make>
Values made(Make make) {
  Values values(rows * columns);
  for (float& value : values) value = make();
  return values;
}

}  // namespace

TEST_SUITE("kernels/linear/quantize") {
  TEST_CASE("every element is within the header's bound, whatever the numbers") {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::student_t_distribution<float> heavy(2.0F);
    std::uniform_real_distribution<float> even(-1.0F, 1.0F);
    const auto flip = [&] { return engine() % 2 == 0 ? 1.0F : -1.0F; };
    const std::vector<Values> cases = {
        made([&] { return normal(engine); }), made([&] { return 1e-20F * heavy(engine); }),
        made([&] { return 1e20F * even(engine); }), made(flip),
        made([&] { return engine() % 32 == 0 ? 100.0F * flip() : normal(engine); })};
    for (const Values& values : cases) {
      for (const WeightCode code : {WeightCode::q8, WeightCode::q4}) {
        const QuantizedGroups groups = quantized(code, values);
        double worst = 0;
        for (std::size_t n = 0; n < rows; ++n) {
          float largest = 0;
          for (std::size_t k = 0; k < columns; ++k) {
            largest = std::max(largest, std::fabs(values[k * rows + n]));
          }
          for (std::size_t k = 0; k < columns; ++k) {
            const double off = value_of(code, groups, k, n) - values[k * rows + n];
            worst = std::max(worst, std::fabs(off) / static_cast<double>(largest));
          }
        }
        CHECK(worst <= (code == WeightCode::q8 ? q8_error : q4_error));
      }
    }
  }

  TEST_CASE("normal weights keep the relative error that the formats were chosen for") {
    std::mt19937 engine(2);
    std::normal_distribution<float> normal;
    for (const WeightCode code : {WeightCode::q8, WeightCode::q4}) {
      double error = 0, size = 0;
      for (int repeat = 0; repeat < 50; ++repeat) {
        const Values values = made([&] { return normal(engine); });
        const QuantizedGroups groups = quantized(code, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double off = value_of(code, groups, i / rows, i % rows) - values[i];
          error += off * off;
          size += static_cast<double>(values[i]) * values[i];
        }
      }
      const double relative = std::sqrt(error / size);
      CAPTURE(relative);
      CHECK(relative < (code == WeightCode::q8 ? 0.0055 : 0.0755));
      CHECK(relative > (code == WeightCode::q8 ? 0.0045 : 0.0740));
    }
  }

  TEST_CASE("zeros stay zeros, levels stay what they are, and what is not a number is NaN") {
    for (const WeightCode code : {WeightCode::q8, WeightCode::q4}) {
      std::mt19937 engine(3);
      std::normal_distribution<float> normal;
      Values values = made([&] { return normal(engine); });
      for (std::size_t k = 0; k < columns; ++k) {
        values[k * rows + 1] = 0.0F;
        values[k * rows + 2] = k == 5 ? 3.0F : 0.0F;
        values[k * rows + 3] = 0.25F * static_cast<float>(q4_levels[k % 16]);
        if (k == 7) values[k * rows + 4] = INFINITY;
        if (k == 31) values[k * rows + 5] = NAN;
      }
      const QuantizedGroups groups = quantized(code, values);
      for (std::size_t k = 0; k < columns; ++k) {
        CHECK(value_of(code, groups, k, 1) == 0.0F);
        CHECK((value_of(code, groups, k, 2) == 0.0F) == (k != 5));
        CHECK(value_of(code, groups, k, 3) == values[k * rows + 3]);
        CHECK(std::isnan(value_of(code, groups, k, 4)));
        CHECK(std::isnan(value_of(code, groups, k, 5)));
        CHECK(std::isfinite(value_of(code, groups, k, 6)));
      }
    }
  }

  TEST_CASE("a group does not depend on the other rows") {
    std::mt19937 engine(4);
    std::normal_distribution<float> normal;
    const Values values = made([&] { return normal(engine); });
    Values other = made([&] { return normal(engine); });
    for (std::size_t k = 0; k < columns; ++k) other[k * rows + 60] = values[k * rows + 9];
    for (const WeightCode code : {WeightCode::q8, WeightCode::q4}) {
      const QuantizedGroups a = quantized(code, values), b = quantized(code, other);
      CHECK(a.scales[9].bits == b.scales[60].bits);
      for (std::size_t k = 0; k < columns; ++k) {
        CHECK(a.codes[k * rows + 9] == b.codes[k * rows + 60]);
      }
    }
  }
}

}  // namespace quantize_test
