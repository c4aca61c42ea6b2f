#pragma once

#include <array>

#include "core/engine/handovers.h"
#include "core/engine/lanes.h"
#include "core/engine/prompt_lane.h"

namespace hyb {

/// Prompts run in memory of their own (EngineOptions::link), with steps that have their own orders,
/// and sequences are handed over between steps. There is no tier: it would extend one memory alone.
class SeparateLanes final : public Lanes {
 public:
  /// `options` as the engine's. All outlive this.
  SeparateLanes(Side& answers, const EngineOptions& options, Speculation* speculation);

  std::span<Side* const> sides() override { return sides_; }
  void add_tier(SnapshotTier& tier) override;
  void add(std::span<Sequence* const> choices) override;
  NextStep next() override;
  bool has_news() override;
  std::optional<BesideStep> wait_beside() override;
  bool runs_beside(RequestId request) const override { return lane_.has(request); }
  void fail(const FailedStep& failed) override;
  Side& leave(const Sequence& sequence) override;
  std::int32_t running() override;
  void add_to(EngineUsage& usage) override;
  void audit(std::size_t awaiting, bool is_idle) override;

 private:
  void launch_prompts();
  void fail_prompts();
  void carry_out_orders();
  BesideStep end_step(bool is_waited_for);

  Side* answers_;
  Side prompts_;
  std::array<Side*, 2> sides_;
  Handovers handovers_;
  PromptLane lane_;
  std::function<Clock::time_point()> now_;
  std::size_t sequences_ = 0;  ///< that were added and have not ended
};

}  // namespace hyb
