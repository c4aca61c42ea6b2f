#include "kernels/linear/scale_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "kernels/floats.h"

namespace hyb::kernels {
namespace {

/// Sums are kept apart by column modulo this many, so that compilers make vectors of the loops.
constexpr std::size_t lanes = 8;
using Sums = std::array<float, lanes>;

float total(const Sums& sums) {
  float all = 0;
  for (const float sum : sums) all += sum;
  return all;
}

/// To the nearest whole number, ties to even; sizes below 2^22.
float nearest_whole(float z) {
  constexpr float to_integer = 12582912.0F;  // 1.5 * 2^23: what is added to it loses its fraction
  return (z + to_integer) - to_integer;
}

template <ScaledLevels levels>
float nearest_level(float z) {
  if constexpr (levels == ScaledLevels::e2m1) {
    const float size = std::min(std::fabs(z), 6.0F);
    const float step = size < 2.0F ? 0.5F : size < 4.0F ? 1.0F : 2.0F;
    const float inverse = size < 2.0F ? 2.0F : size < 4.0F ? 1.0F : 0.5F;
    return std::copysign(nearest_whole(size * inverse) * step, z);
  }
  constexpr float least = levels == ScaledLevels::int4 ? -8.0F : -128.0F;
  return nearest_whole(std::clamp(z, least, -1.0F - least));
}

constexpr float smallest_scale = 0x1p-100F;  ///< less has no inverse to speak of

/// A group and the best scale of those tried so far.
template <ScaledLevels levels>
class Search {
 public:
  Search(std::span<const float> numbers, std::span<const float> importance)
      : numbers_(numbers), importance_(importance) {}

  /// `scale` as it is stored, times the unit.
  void attempt(float scale, float stored) {
    if (!(std::fabs(scale) >= smallest_scale && std::fabs(scale) <= 1 / smallest_scale)) return;
    const float inverse = 1.0F / scale;
    Sums errors = {}, products = {}, squares = {};
    for (std::size_t k = 0; k < numbers_.size(); k += lanes) {
      for (std::size_t i = 0; i < lanes; ++i) {
        const float number = numbers_[k + i], weight = importance_[k + i];
        const float level = nearest_level<levels>(number * inverse);
        const float off = number - scale * level;
        errors[i] += weight * (off * off);
        products[i] += weight * (number * level);
        squares[i] += weight * (level * level);
      }
    }
    const float error = total(errors), square = total(squares);
    if (!(error < error_)) return;
    error_ = error;
    scale_ = scale;
    stored_ = stored;
    fitted_ = square > 0 ? total(products) / square : scale;
  }

  float error() const { return error_; }
  float stored() const { return stored_; }
  float fitted() const { return fitted_; }  ///< fits the levels of the best scale best

  void write(std::span<float> nearest) const {
    const float inverse = scale_ == 0 ? 0.0F : 1.0F / scale_;
    for (std::size_t k = 0; k < numbers_.size(); ++k) {
      nearest[k] = nearest_level<levels>(numbers_[k] * inverse);
    }
  }

 private:
  std::span<const float> numbers_, importance_;
  float error_ = std::numeric_limits<float>::infinity();
  float scale_ = 0, stored_ = 0, fitted_ = 0;
};

/// Tries the largest size over each of these, then the scale that fits the best one's levels.
template <ScaledLevels levels>
void search_wholes(Search<levels>& search, float largest, std::span<const float> sizes) {
  constexpr int fits = 4;
  const auto attempt = [&](float scale) {
    const float rounded = to_float(to_bf16(scale));
    search.attempt(rounded, rounded);
  };
  for (const float size : sizes) {
    attempt(largest / size);
    if constexpr (levels == ScaledLevels::int4) attempt(-largest / size);
  }
  for (int i = 0; i < fits; ++i) {
    const float before = search.error();
    attempt(search.fitted());
    if (!(search.error() < before)) return;
  }
}

/// Tries all E4M3 from what makes the largest size somewhat more than 6 to what makes it 0.5.
void search_e4m3(Search<ScaledLevels::e2m1>& search, float largest, float unit) {
  constexpr std::uint8_t last = 0x7e;
  constexpr float beyond = 8.0F, least = 0.5F;
  const auto code_of = [&](float level) {
    const float wanted = largest / unit / level;
    return std::min(last, to_e4m3(std::min(wanted, e4m3_to_float(last))).bits);
  };
  for (unsigned code = std::max<unsigned>(code_of(beyond), 1); code <= code_of(least); ++code) {
    const float stored = e4m3_to_float(static_cast<std::uint8_t>(code));
    search.attempt(stored * unit, stored);
  }
}

template <ScaledLevels levels>
float search_of(std::span<const float> numbers, std::span<const float> importance, float largest,
                float unit, std::span<float> nearest) {
  constexpr std::array<float, 17> of_int4 = {7.0F, 7.5F, 8.0F, 6.5F, 6.0F, 5.5F,  5.0F,  4.0F, 3.0F,
                                             2.0F, 1.0F, 8.5F, 9.0F, 9.5F, 10.0F, 11.0F, 12.0F};
  constexpr std::array<float, 9> of_int8 = {127.0F, 127.5F, 128.0F, 130.0F, 135.0F,
                                            140.0F, 150.0F, 165.0F, 180.0F};
  Search<levels> search(numbers, importance);
  if constexpr (levels == ScaledLevels::e2m1) search_e4m3(search, largest, unit);
  if constexpr (levels == ScaledLevels::int4) search_wholes(search, largest, of_int4);
  if constexpr (levels == ScaledLevels::int8) search_wholes(search, largest, of_int8);
  search.write(nearest);
  return search.stored();
}

}  // namespace

std::optional<float> search_scale(ScaledLevels levels, std::span<const float> numbers,
                                  std::span<const float> importance, float unit,
                                  std::span<float> nearest) {
  require(numbers.size() % lanes == 0 && nearest.size() == numbers.size() &&
              importance.size() == numbers.size(),
          "search_scale: groups of eights");
  float largest = 0, zero = 0;
  for (const float number : numbers) {
    largest = std::max(largest, std::fabs(number));
    zero += number * 0.0F;
  }
  if (std::isnan(zero)) return std::nullopt;
  switch (levels) {
    case ScaledLevels::int4:
      return search_of<ScaledLevels::int4>(numbers, importance, largest, unit, nearest);
    case ScaledLevels::e2m1:
      return search_of<ScaledLevels::e2m1>(numbers, importance, largest, unit, nearest);
    case ScaledLevels::int8:
      break;
  }
  return search_of<ScaledLevels::int8>(numbers, importance, largest, unit, nearest);
}

float e2m1_unit(float largest) {
  constexpr float levels = 6.0F * 448.0F / 1.5F;
  int exponent = 0;
  const float size = std::frexp(largest / levels, &exponent);
  const float unit = std::ldexp(1.0F, size == 0.5F ? exponent - 1 : exponent);
  return largest > 0 && unit >= 2 * smallest_scale ? unit : 1.0F;
}

}  // namespace hyb::kernels
