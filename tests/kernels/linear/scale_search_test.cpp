#include "kernels/linear/scale_search.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/floats.h"

namespace scale_search_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

using Numbers = std::vector<float>;

constexpr ScaledLevels all_levels[] = {ScaledLevels::int4, ScaledLevels::e2m1, ScaledLevels::int8};

struct Found {
  float scale;  ///< with the unit
  Numbers levels;
};

Found found(ScaledLevels levels, const Numbers& numbers, const Numbers& importance, float unit) {
  Found result = {0, Numbers(numbers.size())};
  const auto scale = search_scale(levels, numbers, importance, unit, result.levels);
  REQUIRE(scale);
  result.scale = *scale * (levels == ScaledLevels::e2m1 ? unit : 1);
  return result;
}

double error_of(const Numbers& numbers, const Numbers& importance, const Numbers& levels,
                double scale) {
  double error = 0;
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    error += importance[k] * std::pow(numbers[k] - scale * levels[k], 2);
  }
  return error;
}

Numbers table_of(ScaledLevels levels) {
  if (levels == ScaledLevels::e2m1) {
    Numbers table;
    for (std::uint8_t code = 0; code < 16; ++code) table.push_back(e2m1_to_float(code));
    return table;
  }
  Numbers table;
  const int most = levels == ScaledLevels::int4 ? 8 : 128;
  for (int level = -most; level < most; ++level) table.push_back(static_cast<float>(level));
  return table;
}

float nearest_in(const Numbers& table, float z) {
  return *std::ranges::min_element(table, {}, [&](float level) { return std::fabs(level - z); });
}

/// What makes the largest number the largest level, as formats are usually written.
double plain_error(ScaledLevels levels, const Numbers& numbers, const Numbers& importance,
                   float unit) {
  float largest = 0;
  for (const float number : numbers) largest = std::max(largest, std::fabs(number));
  const Numbers table = table_of(levels);
  double best = std::numeric_limits<double>::infinity();
  const double most = *std::ranges::max_element(table);
  for (const double size : {most, most + 0.5}) {
    if (levels == ScaledLevels::e2m1 && size != most) continue;
    const auto wanted = static_cast<float>(largest / size);
    const float scale = levels == ScaledLevels::e2m1 ? to_float(to_e4m3(wanted / unit)) * unit
                                                     : to_float(to_bf16(wanted));
    Numbers nearest;
    for (const float number : numbers) nearest.push_back(nearest_in(table, number / scale));
    best = std::min(best, error_of(numbers, importance, nearest, scale));
  }
  return best;
}

}  // namespace

TEST_SUITE("kernels/scale_search") {
  TEST_CASE("never worse than plain rounding, and far better where few columns count") {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::lognormal_distribution<float> skewed(0, 2);
    for (const ScaledLevels levels : all_levels) {
      double plain = 0, searched = 0;
      for (int round = 0; round < 300; ++round) {
        const std::size_t size = levels == ScaledLevels::e2m1 ? 16 : round % 2 == 0 ? 32 : 128;
        Numbers numbers(size), importance(size);
        for (float& number : numbers) number = normal(engine) * std::exp2f(normal(engine));
        for (float& weight : importance) weight = skewed(engine);
        float largest = 0;
        for (const float number : numbers) largest = std::max(largest, std::fabs(number));
        const float unit = e2m1_unit(largest * 4);
        const Found best = found(levels, numbers, importance, unit);
        const Numbers table = table_of(levels);
        for (const float level : best.levels) {
          CHECK(std::ranges::find(table, level) != table.end());
        }
        const double error = error_of(numbers, importance, best.levels, best.scale);
        const double by_plain = plain_error(levels, numbers, importance, unit);
        CHECK(error <= by_plain * (1 + 1e-5));
        plain += by_plain;
        searched += error;
      }
      CHECK(searched < 0.9 * plain);
    }
  }

  TEST_CASE("numbers on the grid are met exactly") {
    std::mt19937 engine(2);
    for (const ScaledLevels levels : all_levels) {
      const Numbers table = table_of(levels);
      const float unit = 0x1p-12F;
      for (int round = 0; round < 200; ++round) {
        const auto code = static_cast<std::uint8_t>(30 + engine() % 90);
        const float scale = levels == ScaledLevels::e2m1
                                ? e4m3_to_float(code) * unit
                                : to_float(to_bf16(std::exp2f(engine() % 1000 * 0.02F - 10)));
        Numbers numbers(32), importance(32, 1.0F);
        std::vector<float> few;  // also of groups that use no large levels
        const std::size_t most = levels == ScaledLevels::int8 ? table.size() : 1 + engine() % 16;
        for (std::size_t i = 0; i < most; ++i) few.push_back(table[engine() % table.size()]);
        for (float& number : numbers) number = few[engine() % few.size()] * scale;
        if (levels == ScaledLevels::int8) numbers[5] = -127 * scale, numbers[7] = 0;
        if (levels == ScaledLevels::int8) {
          for (float& number : numbers) number = std::max(number, -127 * scale);
        }
        const Found best = found(levels, numbers, importance, unit);
        CHECK(error_of(numbers, importance, best.levels, best.scale) == 0);
      }
    }
  }

  TEST_CASE("of equal errors the first counts") {
    Numbers numbers(32), importance(32, 1.0F);
    for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = k % 2 == 0 ? 0.7F : -0.7F;
    CHECK(found(ScaledLevels::int4, numbers, importance, 1).scale > 0);
    importance.assign(32, 0.0F);  // all scales are as good: that of plain rounding
    CHECK(found(ScaledLevels::int4, numbers, importance, 1).scale == to_float(to_bf16(0.1F)));
  }

  TEST_CASE("zeros stay zeros, and what is no number is said") {
    for (const ScaledLevels levels : all_levels) {
      Numbers numbers(16, 0.0F), importance(16, 1.0F), nearest(16, 9.0F);
      CHECK(search_scale(levels, numbers, importance, 1, nearest).value() == 0);
      CHECK(nearest == Numbers(16, 0.0F));
      numbers.assign(16, 0x1p-140F);
      CHECK(search_scale(levels, numbers, importance, 1, nearest).value() == 0);
      CHECK(nearest == Numbers(16, 0.0F));
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        numbers.assign(16, 1.0F);
        numbers[3] = bad;
        CHECK(!search_scale(levels, numbers, importance, 1, nearest));
      }
    }
    CHECK(e2m1_unit(0) == 1);
    CHECK(e2m1_unit(1792) == 1);
    CHECK(e2m1_unit(1793) == 2);
    CHECK(e2m1_unit(0.01F) == 0x1p-17F);
  }
}

}  // namespace scale_search_test
