#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "core/memory/prefix/prefill_cost.h"

namespace hyb {

/// Says how many prompt tokens a step runs in a given time. A step takes some time whatever its
/// tokens, which two steps of different lengths show; by one alone all of it counts as the tokens',
/// so that the next chunk is rather too short. Where the wanted time is less than twice that,
/// chunks are longer, so that prompts are still read at half of the rate, but in no case more than
/// four times. What was measured is noisy: a chunk has at most four times the tokens of the one
/// before.
class ChunkPace {
 public:
  /// At least tokens_min, whatever the time.
  std::int32_t tokens_in(std::chrono::nanoseconds time) const {
    if (token_seconds_ <= 0) return tokens_at_first;
    const double wanted = std::chrono::duration<double>(time).count();
    const double seconds = std::clamp(2 * step_seconds_, wanted, 4 * wanted);
    const double tokens = std::min((seconds - step_seconds_) / token_seconds_, 4 * tokens_before_);
    const auto whole = static_cast<std::int32_t>(std::max<double>(tokens, tokens_min));
    return whole < tile ? whole : whole / tile * tile;
  }

  /// Steps of few tokens, or of answers too, say nothing about prompts.
  void ran(const PrefillStep& step) {
    if (step.tokens < tokens_min || step.single > 0 || step.seconds <= 0) return;
    const auto tokens = static_cast<double>(step.tokens);
    const double more = tokens - tokens_before_;
    if (tokens_before_ > 0 && std::abs(more) > tokens / 4) {
      const double slope = (step.seconds - seconds_before_) / more;
      if (slope > 0) step_seconds_ = std::max(step.seconds - slope * tokens, 0.0);
    }
    if (step_seconds_ >= step.seconds) step_seconds_ = 0;
    token_seconds_ = (step.seconds - step_seconds_) / tokens;
    tokens_before_ = tokens;
    seconds_before_ = step.seconds;
  }

  static constexpr std::int32_t tokens_min = 4, tokens_at_first = 16;

 private:
  static constexpr std::int32_t tile = 32;  ///< kernels run that many tokens together

  double token_seconds_ = 0;  ///< 0: nothing is known
  double step_seconds_ = 0;   ///< besides
  double tokens_before_ = 0, seconds_before_ = 0;
};

}  // namespace hyb
