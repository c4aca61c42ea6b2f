#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/engine/scheduler.h"
#include "core/memory/prefix/prefix_cache.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb {

/// Where sequences that are about to start wait for what a tier has of their tokens, while others
/// run. Each asks once, and again after it was sent away.
class TierWaiter {
 public:
  /// All outlive the waiter.
  TierWaiter(SnapshotTier& tier, const PrefixCache& prefixes, Scheduler& scheduler)
      : tier_(&tier), prefixes_(&prefixes), scheduler_(&scheduler) {}

  /// Before a plan: what has come goes into the prefix tree, and who is about to start asks. Never
  /// from inside a plan: the scheduler's last resort is a start from nothing, with no snapshot
  /// left, and one brought back there would take that memory again. Throws what carrying out orders
  /// throws; nobody waits for ever because of that.
  void look();

  bool is_awaited() const { return !waiting_.empty(); }  ///< somebody waits
  void wait() { tier_->wait(); }                         ///< for whatever comes next

  /// The sequence waits no more: it has ended.
  void leave(const Sequence& sequence);

  std::size_t waiting() const { return waiting_.size(); }  ///< sequences
  std::int64_t waits() const { return waits_; }            ///< times that one waited

 private:
  struct Waiting {
    Sequence* sequence;
    std::optional<FetchId> fetch;  ///< empty: the tier has no room to fetch for it yet
  };

  void take_in();
  void ask(Sequence& sequence);
  void release(FetchId fetch);

  SnapshotTier* tier_;
  const PrefixCache* prefixes_;
  Scheduler* scheduler_;
  std::vector<Waiting> waiting_;  ///< in the order asked
  std::int64_t waits_ = 0;
};

}  // namespace hyb
