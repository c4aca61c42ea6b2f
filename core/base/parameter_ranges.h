#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace hyb {

/// What a number of a request may be.
struct ParameterRange {
  double least, most;
  bool excludes_least = false;

  /// NaN is in no range.
  bool has(double value) const {
    return (excludes_least ? value > least : value >= least) && value <= most;
  }

  /// "0 to 100", "above 0 and at most 1".
  std::string text() const;
};

/// One table for command-line options, the bodies of batch files and check(). Limits of weights are
/// far outside of useful values, and far inside of what keeps every product finite.
namespace ranges {
inline constexpr double whole_max = std::numeric_limits<std::int32_t>::max();
inline constexpr ParameterRange max_tokens = {1, whole_max};
inline constexpr ParameterRange logprobs = {0, 20};
inline constexpr ParameterRange temperature = {0, 100};
inline constexpr ParameterRange top_k = {0, whole_max};
inline constexpr ParameterRange top_p = {0, 1, true};
inline constexpr ParameterRange min_p = {0, 1};
inline constexpr ParameterRange repetition_penalty = {0, 100, true};
inline constexpr ParameterRange frequency_penalty = {-100, 100};
inline constexpr ParameterRange presence_penalty = {-100, 100};
inline constexpr ParameterRange logit_bias = {-1000, 1000};
}  // namespace ranges

/// Seeds fill 64 bits, which is more than a range of numbers in doubles can say.
inline constexpr const char* seed_range_text = "0 to 18446744073709551615";

/// top_k as people write it: -1 is all, as 0 is.
constexpr std::int32_t top_k_of(std::int32_t given) { return given == -1 ? 0 : given; }

}  // namespace hyb
