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
  std::int64_t single = 0;  ///< those of sequences that ran one token
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
/// positions are missing, b / a is drawn towards that of the preset. Steps of fewer than 16 tokens,
/// or of many single ones, say nothing about prefill and do not count.
class PrefillMeter {
 public:
  /// `preset`: expected before anything is measured; its ratio counts, not its speed.
  /// `chunk_tokens`: of the steps of a long prompt, over which the cost per step is distributed.
  /// `length_max`: of the sequences whose cost matters.
  PrefillMeter(const PrefillCost& preset, std::int32_t chunk_tokens, std::int32_t length_max);

  /// Returns the cost to use from now on, when the one returned last (at first: the preset) is more
  /// than 10 % off: rarely, since the change costs time. Steps without time do not count.
  std::optional<PrefillCost> ran(const PrefillStep& step);

  /// Empty until 4 steps and 128 tokens have been measured.
  std::optional<PrefillCost> cost() const;

 private:
  /// Fading sums of the steps of one size and position.
  struct Average {
    double steps = 0, tokens = 0, positions = 0, seconds = 0;
  };
  static constexpr std::size_t sizes = 16, places = 32;  ///< powers of two

  Average& average_of(const PrefillStep& step);
  void add(const PrefillStep& step);
  bool is_off(const PrefillCost& cost) const;

  double preset_ratio_;  ///< b / a
  double chunk_tokens_;
  std::int32_t length_max_;
  PrefillCost used_;  ///< returned last
  std::array<std::array<Average, places>, sizes> averages_{};
  std::int64_t steps_ = 0, tokens_ = 0;
};

}  // namespace hyb
