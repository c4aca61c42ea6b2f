#include "core/memory/prefix/prefill_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "core/base/error.h"

namespace hyb {

PrefillCost prefill_seconds(const PrefillCost& flops, double flops_per_second) {
  require(flops.linear >= 0 && flops.square >= 0 && flops.linear + flops.square > 0 &&
              flops_per_second > 0,
          "prefill cost: FLOPs and their speed are positive");
  return flops / flops_per_second;
}

namespace {

constexpr std::int64_t steps_min = 4, tokens_min = 128;
constexpr std::int64_t step_tokens_min = 16;
/// Between two comparisons with the cost in use, after the first few at powers of two.
constexpr std::int64_t steps_between = 32;
constexpr double much = 0.1;
constexpr double fading = 31.0 / 32;
constexpr double outlier = 4;

/// The position at which the preset weighs as much as one step.
constexpr double preset_position = 512;
/// Says how much a cost per token is preferred to a cost per step where the steps do not separate
/// them.
constexpr double per_step_doubt = 0.01;

enum Term : std::size_t { per_step, per_token, per_position, terms };
using Terms = std::array<double, terms>;

/// Least squares by their normal equations.
struct LeastSquares {
  std::array<Terms, terms> matrix{};
  Terms right{};

  /// weight (row * x - target)^2
  void add(const Terms& row, double target, double weight) {
    for (std::size_t i = 0; i < terms; ++i) {
      for (std::size_t j = 0; j < terms; ++j) matrix[i][j] += weight * row[i] * row[j];
      right[i] += weight * row[i] * target;
    }
  }
};

/// Solves for the terms in `used` (a bit set), the others are 0. Empty: the system is singular.
std::optional<Terms> solve(const LeastSquares& system, unsigned used) {
  auto matrix = system.matrix;
  Terms right = system.right;
  const auto is_used = [&](std::size_t i) { return (used >> i & 1U) != 0; };
  for (std::size_t i = 0; i < terms; ++i) {
    if (!is_used(i)) continue;
    if (!(matrix[i][i] > 1e-9 * system.matrix[i][i])) return std::nullopt;
    for (std::size_t row = 0; row < terms; ++row) {
      if (row == i || !is_used(row)) continue;
      const double factor = matrix[row][i] / matrix[i][i];
      for (std::size_t j = 0; j < terms; ++j) matrix[row][j] -= factor * matrix[i][j];
      right[row] -= factor * right[i];
    }
  }
  Terms x{};
  for (std::size_t i = 0; i < terms; ++i) {
    if (is_used(i)) x[i] = right[i] / matrix[i][i];
  }
  return x;
}

/// The best of all solutions without a term below 0.
Terms solve_not_negative(const LeastSquares& system) {
  Terms best{};
  double best_gain = 0;
  for (unsigned used = 1; used < 1U << terms; ++used) {
    const std::optional<Terms> x = solve(system, used);
    if (!x || *std::min_element(x->begin(), x->end()) < 0) continue;
    double gain = 0;  // decrease of the sum of squares against all terms being 0
    for (std::size_t i = 0; i < terms; ++i) gain += (*x)[i] * system.right[i];
    if (gain <= best_gain) continue;
    best = *x;
    best_gain = gain;
  }
  return best;
}

std::size_t power_of_two(double value, std::size_t count) {
  const double power = value < 1 ? 0 : std::floor(std::log2(value));
  return std::min(static_cast<std::size_t>(power), count - 1);
}

}  // namespace

PrefillMeter::PrefillMeter(const PrefillCost& preset, std::int32_t chunk_tokens,
                           std::int32_t length_max)
    : chunk_tokens_(chunk_tokens), length_max_(length_max), used_(preset) {
  require(chunk_tokens > 0 && preset.linear > 0 && preset.square >= 0,
          "prefill meter: a chunk has tokens, and a token costs something");
  preset_ratio_ = preset.square / preset.linear;
}

PrefillMeter::Average& PrefillMeter::average_of(const PrefillStep& step) {
  const auto tokens = static_cast<double>(step.tokens);
  return averages_[power_of_two(tokens, sizes)][power_of_two(step.positions / tokens, places)];
}

bool PrefillMeter::is_off(const PrefillCost& cost) const {
  const auto differ = [&](std::int32_t length) {
    return std::abs(cost.of(length) / used_.of(length) - 1) > much;
  };
  return differ(1024) || differ(length_max_);
}

std::optional<PrefillCost> PrefillMeter::ran(const PrefillStep& step) {
  if (step.tokens < step_tokens_min || 4 * step.single > step.tokens) return std::nullopt;
  if (!(step.seconds > 0)) return std::nullopt;
  add(step);
  if (!std::has_single_bit(static_cast<std::uint64_t>(steps_)) && steps_ % steps_between != 0) {
    return std::nullopt;
  }
  const std::optional<PrefillCost> cost = this->cost();
  if (!cost || !is_off(*cost)) return std::nullopt;
  used_ = *cost;
  return cost;
}

void PrefillMeter::add(const PrefillStep& step) {
  Average& average = average_of(step);
  const auto tokens = static_cast<double>(step.tokens);
  double seconds = step.seconds;
  if (average.steps > 2) {
    seconds = std::min(seconds, outlier * average.seconds / average.tokens * tokens);
  }
  average = {.steps = fading * average.steps + 1,
             .tokens = fading * average.tokens + tokens,
             .positions = fading * average.positions + step.positions,
             .seconds = fading * average.seconds + seconds};
  ++steps_;
  tokens_ += step.tokens;
}

std::optional<PrefillCost> PrefillMeter::cost() const {
  if (steps_ < steps_min || tokens_ < tokens_min) return std::nullopt;
  LeastSquares system;
  double seconds = 0, tokens = 0;
  for (const auto& places_of_size : averages_) {
    for (const Average& average : places_of_size) {
      if (average.steps == 0) continue;
      system.add({average.steps / average.seconds, average.tokens / average.seconds,
                  average.positions / average.seconds},
                 1, average.steps);
      seconds += average.seconds;
      tokens += average.tokens;
    }
  }
  const double token_seconds = seconds / tokens;
  system.add({0, -preset_ratio_ * preset_position / token_seconds, preset_position / token_seconds},
             0, 1);
  system.add({1 / (chunk_tokens_ * token_seconds), 0, 0}, 0, per_step_doubt);
  const Terms x = solve_not_negative(system);
  const PrefillCost cost = {.linear = x[per_token] + x[per_step] / chunk_tokens_,
                            .square = x[per_position]};
  if (cost.of(1) > 0) return cost;
  return std::nullopt;
}

}  // namespace hyb
