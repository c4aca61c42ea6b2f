#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace hyb {

/// The cost of prefilling the first n tokens of a sequence, in seconds or in FLOPs:
///   linear n + square n^2
/// Resuming a longer prompt at n tokens saves of(n).
struct PrefillCost {
  double linear = 0;
  double square = 0;

  double of(std::int64_t tokens) const {
    const auto n = static_cast<double>(tokens);
    return linear * n + square * n * n;
  }
  PrefillCost operator/(double divisor) const { return {linear / divisor, square / divisor}; }
};

/// In seconds, where nothing is known of the model and the machine.
inline constexpr PrefillCost default_prefill_cost = {.linear = 1e-4};

/// FLOPs as seconds on a machine that computes `flops_per_second`. For comparing two snapshots the
/// speed does not matter; for comparing a tier with prefill it does.
PrefillCost prefill_seconds(const PrefillCost& flops, double flops_per_second);

/// A step with prompt tokens, and its duration.
struct PrefillStep {
  std::int64_t tokens = 0;
  /// Sum over its tokens of 2 position + 1, which is the sum over its spans of end^2 - start^2.
  double positions = 0;
  double seconds = 0;
};

/// Learns what prefill costs from the steps of a running engine. A step of n tokens is taken to
/// last
///   per_step + a n + b positions
/// and the three coefficients minimise the squared relative error, none below 0, over averages by
/// the steps' sizes and positions: so a thousand short prompts do not outweigh a few long ones.
/// Each average follows its last 32 steps or so; a step that takes more than four times as long as
/// others of its class counts as four times, since the machine may have slept. Where steps at long
/// positions are missing, b / a is drawn towards that of the preset.
class PrefillMeter {
 public:
  /// `preset`: expected before anything is measured; its ratio counts, not its speed.
  /// `chunk_tokens`: of the steps of a long prompt, over which the cost per step is distributed.
  PrefillMeter(const PrefillCost& preset, std::int32_t chunk_tokens);

  /// Steps without tokens or time do not count.
  void ran(const PrefillStep& step);

  /// Empty until 4 steps and 128 tokens have been measured.
  std::optional<PrefillCost> cost() const;

  std::int64_t steps() const { return steps_; }

 private:
  /// Fading sums of the steps of one size and position.
  struct Average {
    double steps = 0, tokens = 0, positions = 0, seconds = 0;
  };
  static constexpr std::size_t sizes = 16, places = 32;  ///< powers of two

  Average& average_of(const PrefillStep& step);

  double preset_ratio_;  ///< b / a
  double chunk_tokens_;
  std::array<std::array<Average, places>, sizes> averages_{};
  std::int64_t steps_ = 0, tokens_ = 0;
};

}  // namespace hyb
