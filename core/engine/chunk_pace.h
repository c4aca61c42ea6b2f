#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/memory/prefix/prefill_cost.h"

namespace hyb {

/// How many prompt tokens a step runs in a given time, by the step before. Its cost per step counts
/// in, so a chunk that was too short says too few for a longer one, never too many: chunks grow to
/// the wanted time within a few steps.
class ChunkPace {
 public:
  /// At least tokens_min, whatever the time.
  std::int32_t tokens_in(std::chrono::nanoseconds time) const {
    if (token_seconds_ <= 0) return tokens_at_first;
    const double tokens = std::chrono::duration<double>(time).count() / token_seconds_;
    const auto whole = static_cast<std::int32_t>(std::clamp<double>(tokens, tokens_min, 1 << 20));
    return whole < tile ? whole : whole / tile * tile;
  }

  /// Steps of few tokens, or of answers too, say nothing about prompts.
  void ran(const PrefillStep& step) {
    if (step.tokens < tokens_min || step.single > 0 || step.seconds <= 0) return;
    token_seconds_ = step.seconds / static_cast<double>(step.tokens);
  }

  static constexpr std::int32_t tokens_min = 4, tokens_at_first = 16;

 private:
  static constexpr std::int32_t tile = 32;  ///< kernels run that many tokens together

  double token_seconds_ = 0;  ///< 0: nothing is known
};

}  // namespace hyb
