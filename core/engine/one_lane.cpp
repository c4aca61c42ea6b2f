#include "core/engine/one_lane.h"

#include "core/base/error.h"

namespace hyb {

void OneLane::add_tier(SnapshotTier& tier) {
  require(tier_ == nullptr, "engine: there is one tier");
  tier_ = &tier;
  waiter_.emplace(tier, side_->prefixes, side_->scheduler);
}

std::vector<const Checkpoint*> OneLane::arriving() const {
  return tier_ == nullptr ? std::vector<const Checkpoint*>() : tier_->arriving();
}

/// Waits for the tier when every sequence that could run does.
NextStep OneLane::next() {
  for (;;) {
    if (waiter_) waiter_->poll();
    const Clock::time_point begin = now_();
    const auto plan = side_->scheduler.plan(Lane::all, !arriving().empty());
    if (!plan.empty() || !is_tier_awaited()) return {.plan = plan, .begin = begin};
    waiter_->wait();
  }
}

void OneLane::fail(const FailedStep& failed) {
  if (tier_ != nullptr) tier_->drop_arriving();
  side_->fail(failed.plan, failed.orders, failed.is_known);
}

Side& OneLane::leave(const Sequence& sequence) {
  if (waiter_) waiter_->leave(sequence);
  return *side_;
}

void OneLane::add_to(EngineUsage& usage) {
  if (waiter_) usage.tier_waits = waiter_->waits();
}

void OneLane::audit(std::size_t awaiting, bool is_idle) {
  side_->audit(arriving(), is_idle);
  require(awaiting == (waiter_ ? waiter_->waiting() : 0),
          "engine: what waits for a tier is counted where it is fetched");
}

}  // namespace hyb
