#pragma once

#include <array>
#include <functional>
#include <optional>

#include "core/engine/lanes.h"
#include "core/engine/tier_waiter.h"

namespace hyb {

/// One runner has prompts and answers. A tier may extend its memory: sequences that are about to
/// start wait for what it has of their tokens, while others run.
class OneLane : public Lanes {
 public:
  /// The side outlives this.
  OneLane(Side& side, std::function<Clock::time_point()> now)
      : side_(&side), now_(std::move(now)), sides_{side_} {}

  std::span<Side* const> sides() override { return sides_; }
  void add_tier(SnapshotTier& tier) override;
  void add(std::span<Sequence* const> choices) override { side_->scheduler.add(choices); }
  NextStep next() override;
  bool has_news() override { return is_tier_awaited(); }
  std::optional<BesideStep> wait_beside() override { return std::nullopt; }
  void fail(const FailedStep& failed) override;
  Side& leave(const Sequence& sequence) override;
  std::int32_t running() override { return side_->scheduler.running(); }
  void add_to(EngineUsage& usage) override;
  void audit(std::size_t awaiting, bool is_idle) override;

 protected:
  bool is_tier_awaited() const { return waiter_ && waiter_->is_awaited(); }
  std::vector<const Checkpoint*> arriving() const;

  Side* side_;
  std::function<Clock::time_point()> now_;
  std::optional<TierWaiter> waiter_;  ///< set where there is a tier

 private:
  SnapshotTier* tier_ = nullptr;
  std::array<Side*, 1> sides_;
};

}  // namespace hyb
