#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/engine/scheduler.h"
#include "core/memory/prefix/prefix_cache.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb {

/// Sequences that are about to start wait here for what a tier has of their tokens, while others
/// run. Each is looked up once, and again after a preemption.
class TierWaiter {
 public:
  /// All outlive this object.
  TierWaiter(SnapshotTier& tier, const PrefixCache& prefixes, Scheduler& scheduler)
      : tier_(&tier), prefixes_(&prefixes), scheduler_(&scheduler) {}

  /// Call it before a plan: puts what has arrived into the prefix tree, and looks up sequences that
  /// are about to start. Never from inside a plan: the scheduler's last resort is a start from
  /// nothing, with no snapshot left, and a fetched one would take that memory again. Throws what
  /// carrying out orders throws; no sequence waits forever because of that.
  void poll();

  bool is_awaited() const { return !waiting_.empty(); }  ///< some sequence waits
  void wait() { tier_->wait(); }                         ///< for the next arrival

  /// The sequence has ended and waits no more.
  void leave(const Sequence& sequence);

  std::size_t waiting() const { return waiting_.size(); }  ///< sequences
  std::int64_t waits() const { return waits_; }            ///< times that one waited

 private:
  struct Waiting {
    Sequence* sequence;
    std::optional<FetchId> fetch;  ///< empty: the tier has no room for this fetch yet
  };

  void deliver_arrived();
  void ask(Sequence& sequence);
  void release(FetchId fetch);

  SnapshotTier* tier_;
  const PrefixCache* prefixes_;
  Scheduler* scheduler_;
  std::vector<Waiting> waiting_;  ///< in the order of the requests
  std::int64_t waits_ = 0;
};

}  // namespace hyb
