#include "core/engine/room_maker.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb {

/// A sequence takes a ring again when there is memory for it.
bool RoomMaker::evict(const Snapshot* keep) {
  bool has_released = false;
  for (Sequence* const sequence : *running_) {
    has_released = has_released || sequence->memory().ring() != no_ring;
    sequence->memory().release_ring();
  }
  return has_released || prefixes_->evict(keep);
}

/// Of the prompts the youngest goes.
bool RoomMaker::make(const Snapshot* keep) {
  if (evict(keep)) return true;
  if (prompts_->empty()) return reclaim_ && reclaim_();
  prompts_->erase(std::prev(prompts_->end()));
  return true;
}

MemoryDemand RoomMaker::demand_of(const Sequence& newcomer, const Lookup& lookup) const {
  MemoryDemand demand(*pool_);
  for (const Sequence* const other : *running_) demand.add_running(*other);
  demand.add_newcomer(newcomer.tokens() + 1, lookup.resumable);
  const PrefixCacheOptions& options = prefixes_->options();
  if (options.enabled && options.precision == Precision::exact) demand.add_slots(1);
  return demand;
}

bool RoomMaker::may_fit(const Sequence& newcomer, const Lookup& lookup) const {
  const MemoryDemand demand = demand_of(newcomer, lookup);
  return demand.fits() || demand.fits_beside(*running_);
}

bool RoomMaker::make_for(const Sequence& newcomer, const Lookup& lookup) {
  const MemoryDemand demand = demand_of(newcomer, lookup);
  if (!demand.fits() && !demand.fits_beside(*running_)) return false;
  while (!demand.fits() && evict(lookup.snapshot)) {
  }
  while (!demand.fits() && pool_->compact_for(demand.driest())) {
  }
  return demand.fits();
}

bool RoomMaker::retry_lacking(std::int32_t tokens) {
  if (pool_->can_hold_now(tokens)) {
    has_asked_ = false;
    return false;
  }
  if (!has_asked_) pool_->retry_uncommitted();
  has_asked_ = !has_asked_ && pool_->can_hold_now(tokens);
  if (has_asked_) return true;
  const MemoryLayout& layout = pool_->layout();
  throw Error(
      ErrorKind::memory,
      fmt::format("memory: the device has memory for {} of {} superblocks of {} bytes now, "
                  "and a sequence of {} tokens needs {} bytes; end what else uses the "
                  "device, or ask for less with --memory or --context",
                  layout.superblocks - pool_->superblocks().uncommitted(), layout.superblocks,
                  layout.superblock_bytes, tokens, bytes_peak(layout, tokens, 1)));
}

}  // namespace hyb
