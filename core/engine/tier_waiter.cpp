#include "core/engine/tier_waiter.h"

#include <algorithm>

namespace hyb {

/// Ends the wait of all sequences that waited for the fetch.
void TierWaiter::release(FetchId fetch) {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.fetch != fetch) return false;
    waiting.sequence->awaited().elsewhere = Wait::over;
    return true;
  });
  scheduler_->retry_admission();
}

/// Ends fetches that have arrived, or that the tier lost.
void TierWaiter::deliver_arrived() {
  std::vector<FetchId> fetches;
  for (const Waiting& waiting : waiting_) {
    if (waiting.fetch) fetches.push_back(*waiting.fetch);
  }
  fetches.erase(std::unique(fetches.begin(), fetches.end()), fetches.end());
  for (const FetchId fetch : fetches) {
    const bool is_ready = tier_->advance(fetch);
    if (!is_ready && tier_->is_pending(fetch)) continue;
    std::vector<Sequence*> sequences;
    for (const Waiting& waiting : waiting_) {
      if (waiting.fetch == fetch) sequences.push_back(waiting.sequence);
    }
    release(fetch);  // first: an exception below must not leave them waiting
    if (tier_->deliver(fetch) != FetchEnd::damaged) continue;
    for (Sequence* const sequence : sequences) ask(*sequence);
  }
}

void TierWaiter::ask(Sequence& sequence) {
  const auto known = sequence.known();
  sequence.awaited().known_to_tier = tier_->known(known);
  const std::int32_t resumable = prefixes_->look_up(known).resumable;
  // Whether an answer comes from an int8 snapshot must not depend on the speed of a disk.
  if (prefixes_->options().precision == Precision::int8) {
    tier_->fetch(known, resumable);
    sequence.awaited().elsewhere = Wait::over;
    return;
  }
  const TierAnswer answer = tier_->ask(known, resumable);
  const bool waits = answer.fetch.has_value() || answer.is_full;
  sequence.awaited().elsewhere = waits ? Wait::tier : Wait::over;
  if (waits) waiting_.push_back({.sequence = &sequence, .fetch = answer.fetch});
  if (answer.fetch) ++waits_;
}

/// Sequences whose fetch had no room are looked up again, if they are still about to start.
void TierWaiter::poll() {
  deliver_arrived();
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.fetch) return false;
    waiting.sequence->awaited().elsewhere = Wait::none;
    scheduler_->retry_admission();
    return true;
  });
  for (Sequence* const sequence : scheduler_->about_to_start()) ask(*sequence);
}

void TierWaiter::leave(const Sequence& sequence) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return waiting.sequence == &sequence;
  });
  if (found == waiting_.end()) return;
  const std::optional<FetchId> fetch = found->fetch;
  waiting_.erase(found);
  const bool is_awaited =
      std::any_of(waiting_.begin(), waiting_.end(),
                  [&](const Waiting& waiting) { return waiting.fetch == fetch; });
  if (fetch && !is_awaited) tier_->drop(*fetch);
}

}  // namespace hyb
