#pragma once

#include <cstdint>

#include "app/runtime/memory_plan.h"
#include "app/runtime/model_outline.h"

namespace hyb::app {

/// Computes what fits into a budget, from config.json alone. Every number is what opening the model
/// would set aside, since it calls plan_memory.
class Fit {
 public:
  /// The outline outlives it. `threads` take part in the workspace.
  Fit(const ModelOutline& outline, const Budget& budget, int threads, std::int32_t chunk_tokens = 0)
      : outline_(&outline), budget_(budget), threads_(threads), chunk_tokens_(chunk_tokens) {}

  /// Returns how the budget is divided. Throws Error(memory) when not even one short sequence fits,
  /// and Error(usage) when the model has no positions for `context`.
  MemoryPlan plan(std::int32_t context, std::int32_t sequences) const;

  /// Returns how many sequences of this many tokens run at once, at most sequences_max.
  std::int32_t sequences_of(std::int32_t length) const;
  static constexpr std::int32_t sequences_max = 4096;

  /// Most tokens of a single sequence: what memory holds, within what the model states.
  std::int32_t length_max() const;

  /// True if the model has positions for this many tokens.
  bool has_positions(std::int32_t length) const;

 private:
  bool holds(std::int32_t length, std::int32_t sequences) const;

  const ModelOutline* outline_;
  Budget budget_;
  int threads_;
  std::int32_t chunk_tokens_;  ///< as SessionShape's
};

}  // namespace hyb::app
