#pragma once

#include <cstdint>

#include "core/engine/runner.h"

namespace hyb::models {

/// The rules for what a runner runs: owns its capacity. A step beyond it, or one that names memory
/// or tokens that there are none of, is a bug of the caller and is refused before anything runs.
class StepRules {
 public:
  /// `positions_max`: most tokens of a sequence. `vocab`: ids of tokens are below it; those from
  /// the capacity's on are read, not drawn.
  StepRules(const Capacity& capacity, std::int32_t positions_max, std::int32_t vocab)
      : capacity_(capacity), positions_max_(positions_max), vocab_(vocab) {}

  const Capacity& capacity() const { return capacity_; }

  /// With recurrent state, spans write different slots, and one reads what another writes only
  /// where it continues it, with the next position and the same page tables. Branches write none.
  void check(const Step& step) const;
  void check(const AdvanceSlot& order) const;
  /// A step as Runner::draft has it.
  void check_drafting(const Step& step) const;

 private:
  void check(const Span& span) const;
  void check_pages(const Span& span) const;
  void check_ring(const Span& span) const;
  bool has_unit(ViewId view, std::int32_t unit) const;

  Capacity capacity_;
  std::int32_t positions_max_, vocab_;
};

}  // namespace hyb::models
