// Who waits gets memory, from the deepest snapshot there is, or goes on waiting.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/common_tokens.h"
#include "core/engine/leader.h"
#include "core/engine/memory_demand.h"
#include "core/engine/scheduler.h"
#include "core/memory/resumable.h"

namespace hyb {

Scheduler::Admission Scheduler::admit(Sequence& sequence) {
  const auto prompt = checkpoints_.find(sequence.age().request);
  if (prompt != checkpoints_.end()) {
    if (admit_choice(sequence, prompt->second)) return Admission::started;
    if (!running_.empty()) return Admission::no_room;
    checkpoints_.erase(prompt);
  }
  if (sequence.tier_look() == TierLook::awaited) return Admission::awaits_tier;
  if (sequence.leader() && is_awaited(*sequence.leader(), running_)) return Admission::follows;
  Lookup lookup = prefixes_->look_up(sequence.known());
  share_anywhere(sequence, lookup);
  if (follows(sequence, lookup.resumable)) return Admission::follows;
  if (!running_.empty() && !make_room_for(sequence, lookup)) return Admission::no_room;
  std::optional<Memory> memory = memory_for(sequence, lookup);
  if (!memory) return Admission::no_room;

  // Where it leaves what was seen before a snapshot is wanted, be the others in memory or not.
  lookup.matched = std::max(lookup.matched, sequence.known_to_tier());
  const Request& request = sequence.request();
  if (!sequence.was_started() && request.keep_snapshots) {
    std::vector<Cut> cuts =
        request.needed_later ? prefixes_->cuts_at(lookup, sequence.prompt(), request.message_ends)
                             : prefixes_->cuts(lookup, sequence.prompt(), request.message_ends);
    // With logits the snapshot stands behind the last token, not before it.
    if (sequence.keeps_logits()) {
      std::erase_if(cuts, [](const Cut& cut) { return cut.place == SnapshotPlace::prompt_end; });
    }
    sequence.set_cuts(std::move(cuts));
  }
  start(sequence, *std::move(memory),
        {.matched = lookup.matched,
         .snapshot = lookup.snapshot,
         .is_tracked = prefixes_->options().enabled,
         .source = lookup.source});
  return Admission::started;
}

bool Scheduler::admit_choice(Sequence& sequence, const Checkpoint& prompt) {
  Lookup lookup = {.matched = prompt.length(), .resumable = prompt.length(), .snapshot = nullptr};
  if (!running_.empty() && !make_room_for(sequence, lookup)) return false;
  std::optional<Memory> memory = pool_->resume(prompt);
  while (!memory && prefixes_->evict()) memory = pool_->resume(prompt);
  if (!memory) return false;
  start(sequence, *std::move(memory), {.matched = sequence.tokens(), .is_tracked = true});
  return true;
}

/// Whether it had better wait for one that is running a prefix of its own.
bool Scheduler::follows(Sequence& sequence, std::int32_t resumable) {
  if (!prefixes_->options().enabled) return false;
  const std::optional<Leader> leader =
      leader_for(sequence, resumable, limits_.shared_tokens_min, running_);
  sequence.follow(leader);
  if (!leader) return false;
  const auto found = std::lower_bound(running_.begin(), running_.end(), leader->age, Older{});
  cut(**found, leader->length);
  ++counts_.prefix_waits;
  return true;
}

/// Has a running sequence leave a snapshot there.
void Scheduler::cut(Sequence& sequence, std::int32_t length) {
  sequence.add_cut({.length = length, .place = SnapshotPlace::branch});
  const std::int32_t tokens = unassign(sequence);
  if (tokens == 0) return;
  const std::int32_t stands = sequence.memory().length();
  const std::int32_t first = std::min(tokens, sequence.next_cut(stands) - stands);
  assign(sequence, first);
  assign_behind_cuts(sequence, tokens - first);
}

/// Where a sequence can be resumed at every point that it has passed, another that began alike
/// leaves a snapshot at once.
void Scheduler::share_anywhere(const Sequence& sequence, Lookup& lookup) {
  if (!prefixes_->options().enabled || !resumes_anywhere(pool_->layout())) return;
  for (Sequence* other : running_) {
    const std::int32_t passed = other->memory().length();
    if (!other->request().keep_snapshots || passed < lookup.resumable + limits_.shared_tokens_min)
      continue;
    const auto known = other->known().first(static_cast<std::size_t>(passed));
    const std::int32_t common = common_tokens(known, sequence.known());
    if (common < lookup.resumable + limits_.shared_tokens_min) continue;
    if (prefixes_->publish(known, other->memory(), SnapshotPlace::branch)) {
      lookup = prefixes_->look_up(sequence.known());
    }
  }
}

MemoryDemand Scheduler::demand_beside_running(const Sequence& sequence,
                                              std::int32_t resumable) const {
  MemoryDemand demand(*pool_);
  for (const Sequence* other : running_) demand.add_running(*other);
  demand.add_newcomer(sequence.tokens() + 1, resumable);
  const PrefixCacheOptions& options = prefixes_->options();
  if (options.enabled && options.precision == Precision::exact) demand.add_slots(1);
  return demand;
}

/// Memory for it beside those that run, at the cost of snapshots if need be; none of them goes
/// when that would not do. What is free in many superblocks, a little in each, is brought together.
bool Scheduler::make_room_for(const Sequence& sequence, Lookup& lookup) {
  const MemoryDemand demand = demand_beside_running(sequence, lookup.resumable);
  if (demand.fits()) return true;
  if (!demand.fits_beside(running_)) return false;
  bool evicted = false;
  while (!demand.fits() && prefixes_->evict(lookup.snapshot)) evicted = true;
  while (!demand.fits() && pool_->compact_for(demand.driest())) {
  }
  if (evicted && lookup.snapshot != nullptr) lookup = prefixes_->look_up(sequence.known());
  return demand.fits();
}

std::optional<Memory> Scheduler::memory_for(const Sequence& sequence, Lookup& lookup) {
  std::optional<Memory> memory = prefixes_->resume(lookup);
  while (!memory) {
    // Alone, it does without a snapshot that it has no room to resume from.
    const bool has_room = make_room(lookup.snapshot) || (running_.empty() && make_room());
    if (!has_room) return std::nullopt;
    lookup = prefixes_->look_up(sequence.known());
    memory = prefixes_->resume(lookup);
  }
  return memory;
}

void Scheduler::start(Sequence& sequence, Memory memory, const Resumed& resumed) {
  waiting_.erase(&sequence);
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, Older{}),
                  &sequence);
  sequence.start(std::move(memory), resumed);
  drop_checkpoint_if_unused(sequence.age().request);
  if (sequence.at_prompt_end()) let_choices_go(sequence);
}

}  // namespace hyb
