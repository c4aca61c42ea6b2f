#include "core/engine/scheduler.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "core/base/error.h"
#include "core/base/ids.h"

namespace hyb {
void Scheduler::add(std::span<Sequence* const> choices) {
  Sequence& first = *choices.front();
  const bool shares = choices.size() > 1 && first.prompt().size() > 1;
  const std::size_t held = shares ? choices.size() - 1 : 0;
  if (shares) {
    first.hold_at_prompt_end(true);
    held_[first.age().request].assign(choices.begin() + 1, choices.end());
  }
  waiting_.insert(choices.begin(), choices.end() - static_cast<std::ptrdiff_t>(held));
  may_start_ = true;
}

Memory Scheduler::take(Sequence& sequence) {
  require(!sequence.is_under_way() && std::erase(running_, &sequence) > 0,
          "scheduler: one that runs here leaves between steps");
  may_start_ = true;
  return std::move(sequence.memory());
}

std::vector<Sequence*> Scheduler::withdraw(Sequence& sequence) {
  require(waiting_.erase(&sequence) > 0, "scheduler: one that waits here is withdrawn");
  std::vector<Sequence*> all = {&sequence};
  if (const auto held = held_.extract(sequence.age().request)) {
    all.insert(all.end(), held.mapped().begin(), held.mapped().end());
  }
  may_start_ = true;
  return all;
}

bool Scheduler::has(const Sequence& sequence) const {
  const ArrivalOrder age = sequence.age();
  const auto held = held_.find(age.request);
  return std::binary_search(running_.begin(), running_.end(), age, Older{}) ||
         waiting_.contains(age) ||
         (held != held_.end() && std::ranges::count(held->second, &sequence) > 0);
}

std::vector<Sequence*> Scheduler::unplaced() const {
  std::vector<Sequence*> sequences;
  for (Sequence* const sequence : waiting_) {
    if (sequence->awaited().elsewhere != Wait::none) continue;
    if (!checkpoints_.contains(sequence->age().request)) sequences.push_back(sequence);
  }
  return sequences;
}

bool Scheduler::make_room_for_arrival(const Sequence& sequence, const Lookup& lookup) {
  return running() + places_kept_ < limits_.sequences_max && room_.make_for(sequence, lookup);
}

void Scheduler::remove(Sequence& sequence) {
  require(!sequence.is_under_way(), "scheduler: what a step needs stays until it has run");
  const RequestId request = sequence.age().request;
  std::erase(running_, &sequence);
  waiting_.erase(&sequence);
  sequence.release();
  if (const auto held = held_.find(request); held != held_.end()) {
    if (std::erase(held->second, &sequence) == 0) release_choices(sequence);
  }
  drop_checkpoint_if_unused(request);
  may_start_ = true;
}

void Scheduler::retire(Sequence& sequence) {
  const Request& request = sequence.request();
  const std::int32_t length = sequence.memory().length();
  if (request.needed_later) {
    prefixes_->deprioritize(sequence.prompt(), *request.needed_later);
  } else if (request.keep_snapshots && length > 0) {
    SnapshotPlace place = SnapshotPlace::turn_end;
    if (request.prefill_only) {
      place = SnapshotPlace::message_end;
    } else if (length < static_cast<std::int32_t>(sequence.prompt().size())) {
      place = SnapshotPlace::branch;  // it ended within its prompt, which is no end of a turn
    }
    prefixes_->publish_final(sequence.known(), std::move(sequence.memory()), place);
  }
  remove(sequence);
}

std::vector<Sequence*> Scheduler::about_to_start() const {
  std::vector<Sequence*> sequences;
  if (!may_start_ && !running_.empty()) return sequences;
  std::int32_t places = limits_.sequences_max - running() - places_kept_;
  for (Sequence* const sequence : waiting_) {
    if (--places < 0) break;
    if (sequence->awaited().elsewhere != Wait::none) continue;
    if (checkpoints_.contains(sequence->age().request)) continue;
    if (!running_.empty() && !room_.may_fit(*sequence, prefixes_->look_up(sequence->known()))) {
      break;
    }
    sequences.push_back(sequence);
  }
  return sequences;
}

std::span<const Assignment> Scheduler::plan(Lane lane, bool others_hold_memory) {
  require(lane == Lane::decode || under_way() == 0,
          "scheduler: sequences start while nothing is under way");
  lane_ = lane;
  others_hold_memory_ = others_hold_memory;
  // The device has memory again: waiting sequences may start.
  if (pool_->superblocks().uncommitted() < uncommitted_) may_start_ = true;
  std::int32_t uncommitted = -1;
  // Where the device refused memory meanwhile, plan again with what there is.
  while (uncommitted < 0 || (plan_.empty() && pool_->superblocks().uncommitted() > uncommitted)) {
    check_committed();
    uncommitted = pool_->superblocks().uncommitted();
    plan_lane();
  }
  uncommitted_ = pool_->superblocks().uncommitted();
  const auto waits = [](Sequence* one) { return one->awaited().comes(); };
  require(lane != Lane::all || !plan_.empty() || others_hold_memory ||
              (running_.empty() && std::all_of(waiting_.begin(), waiting_.end(), waits)),
          "scheduler: some sequence can always continue");
  return plan_.entries();
}

/// Throws where the oldest sequence does not fit: it would start over forever.
void Scheduler::check_committed() {
  if (pool_->superblocks().uncommitted() == 0 || (running_.empty() && waiting_.empty())) return;
  const Sequence& oldest = running_.empty() ? **waiting_.begin() : *running_.front();
  room_.retry_lacking(oldest.tokens());
}

/// Returns whether the sequence's one pending token comes first in the plan.
bool Scheduler::runs_single_token(const Sequence& sequence) const {
  return lane_ == Lane::all ? sequence.pending() == 1 : sequence.decodes();
}

void Scheduler::plan_lane() {
  plan_.clear();
  preempted_ = false;
  pin_awaited();
  plan_single_tokens();
  if (lane_ == Lane::decode) return;
  if (!plan_.empty() && limits_.mixed_tokens > 0) plan_.limit_tokens(limits_.mixed_tokens);
  plan_chunks();
  const auto others_run = [&] {
    return lane_ == Lane::prefill &&
           (others_hold_memory_ || std::ranges::any_of(running_, &Sequence::decodes));
  };
  // A sequence that was just preempted does not start again at once.
  if ((!plan_.empty() || others_run()) && (!preempted_ || running_.empty())) plan_newcomers();
  // Running sequences block each other, or their memory is fragmented: the oldest starts over. The
  // second time no snapshot is left whose slot it would hold besides its own.
  for (int attempt = 0; plan_.empty() && !others_run() && attempt < 2; ++attempt) {
    while (!running_.empty()) preempt_youngest();
    plan_newcomers();
  }
}

bool Scheduler::predicts_next(std::span<const Assignment> plan) {
  const bool is_full = running() >= std::min(limits_.sequences_max, limits_.step_tokens);
  const bool lets_start = !is_full && under_way() == 0;
  if (may_start_ && !waiting_.empty() && lets_start) return false;
  if (plan.size() + static_cast<std::size_t>(under_way()) != running_.size()) return false;
  return std::all_of(plan.begin(), plan.end(), [](const Assignment& entry) {
    return entry.drafts == 0 && entry.sequence->is_predictable() &&
           entry.sequence->memory().reserve(2);
  });
}

void Scheduler::ran(Sequence& sequence) {
  Memory& memory = sequence.memory();
  if (const std::optional<SnapshotPlace> place = sequence.cuts().take(memory.length())) {
    prefixes_->publish(sequence.known(), memory, *place);
    may_start_ = true;
  }
  if (sequence.at_prompt_end()) release_choices(sequence);
}

void Scheduler::fail(std::span<const Assignment> plan, std::span<const Order> orders,
                     bool is_known) {
  const UnitSet lost = is_known ? pool_->void_units(orders) : UnitSet();
  std::erase_if(running_, [&](Sequence* sequence) {
    const bool is_lost = is_known && pool_->holds(sequence->memory(), lost);
    require(!is_lost || !sequence->is_under_way(), "scheduler: no order names what is under way");
    if (sequence->is_under_way()) return false;
    const bool is_planned = std::ranges::count(plan, sequence, &Assignment::sequence) > 0;
    if (is_known && !is_planned && !is_lost) return false;
    sequence->release();
    waiting_.insert(sequence);
    return true;
  });
  may_start_ = true;
  if (is_known) {
    const auto has_lost = [&](const Checkpoint& one) { return pool_->holds(one, lost); };
    std::erase_if(checkpoints_, [&](const auto& entry) { return has_lost(entry.second); });
    prefixes_->drop_lost(has_lost);
    pool_->order_owners_again(orders);
  } else {
    checkpoints_.clear();
    prefixes_->clear();
    pool_->resync_owners();
  }
}

/// Pins what the oldest waiting sequences will resume from. They are looked up only when they have
/// changed or something new was published.
void Scheduler::pin_awaited() {
  if (!prefixes_->options().enabled) return;
  const auto next = std::views::take(waiting_, limits_.look_ahead);
  const std::int64_t published = prefixes_->stats().published;
  if (published == pinned_at_ && std::ranges::equal(next, pinned_for_, {}, &Sequence::age)) return;
  pinned_at_ = published;
  pinned_for_.clear();
  pinned_.clear();
  for (const Sequence* const sequence : next) {
    pinned_for_.push_back(sequence->age());
    Snapshot* const snapshot = prefixes_->look_up(sequence->known()).snapshot;
    if (snapshot != nullptr) pinned_.push_back(snapshot);
  }
  prefixes_->pin(pinned_);
}

/// From the oldest on, so that a preempted sequence has nothing assigned yet.
void Scheduler::plan_single_tokens() {
  for (std::size_t i = 0; i < running_.size() && plan_.tokens_left() > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (!runs_single_token(sequence)) continue;
    while (!sequence.memory().reserve(1)) {
      if (room_.make()) continue;
      const bool is_youngest = &youngest() == &sequence;
      if (is_youngest && under_way() > 0) {  // which will have run, and is preempted then
        ++counts_.deferrals;
        return;
      }
      preempt_youngest();
      if (is_youngest) return;
    }
    if (lane_ != Lane::prefill) plan_.assign(sequence, 1);
  }
}

/// As long as there are tokens left, exactly the sequences with one pending token have it assigned
/// by now.
void Scheduler::plan_chunks() {
  for (std::size_t i = 0; i < running_.size() && plan_.tokens_left() > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (runs_single_token(sequence)) continue;
    while (!assign_chunk(sequence)) {
      if (room_.make()) continue;
      // A younger one that runs in this step will end and free its pages; an idle one just holds
      // them.
      const Sequence& youngest = *running_.back();
      if (&youngest == &sequence || runs_single_token(youngest)) {
        ++counts_.deferrals;
        break;
      }
      preempt_youngest();
    }
  }
}

void Scheduler::plan_newcomers() {
  if (!may_start_ && !running_.empty()) return;
  may_start_ = false;
  std::int32_t followers = 0;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (plan_.tokens_left() == 0 || running() + places_kept_ + followers >= limits_.sequences_max) {
      may_start_ = true;
      return;
    }
    Sequence& sequence = **next++;
    const Admission admission = admit(sequence);
    if (admission == Admission::waits) {
      // Its place is kept, unless nothing would run because of that.
      if (!running_.empty()) ++followers;
      continue;
    }
    if (admission == Admission::no_room) {
      ++counts_.deferrals;
      return;
    }
    if (lane_ == Lane::prefill && sequence.decodes()) continue;
    while (!assign_chunk(sequence)) {
      if (!room_.make()) return;
    }
  }
}

/// Assigns as much as there is room for, evicting snapshots; false when that is nothing.
bool Scheduler::assign_chunk(Sequence& sequence) {
  Memory& memory = sequence.memory();
  const std::int32_t length = memory.length();
  const std::int32_t own = sequence.request().chunk_tokens;
  const std::int32_t most = own > 0 ? std::min(own, limits_.chunk_tokens) : limits_.chunk_tokens;
  const std::int32_t wanted = std::min({sequence.pending(), most, plan_.tokens_left()});
  std::int32_t tokens = sequence.cuts().next(length, length + wanted) - length;
  const auto has_room = [&] { return MemoryDemand(*pool_).add_growth(memory, tokens).fits(); };
  while (!has_room() && room_.evict()) {
  }
  // Groups reserve one after the other: the first must leave the others what they need.
  while (pool_->layout().group_count() > 1 && tokens > 1 && !has_room()) tokens /= 2;
  if (!memory.reserve(tokens)) tokens = std::min(tokens, memory.room() - length);
  if (tokens <= 0) return false;
  plan_.assign(sequence, tokens, wanted - tokens);
  return true;
}

/// The first choice has reached the last token of the prompt, or has ended: the others may start,
/// from there if there is room to keep that point for them.
void Scheduler::release_choices(Sequence& first) {
  const RequestId request = first.age().request;
  const auto held = held_.find(request);
  first.hold_at_prompt_end(false);
  if (held == held_.end()) return;
  if (first.memory().length() > 0) {
    std::optional<Checkpoint> prompt = first.memory().checkpoint();
    if (prompt) checkpoints_.insert_or_assign(request, *std::move(prompt));
  }
  waiting_.insert(held->second.begin(), held->second.end());
  held_.erase(held);
  may_start_ = true;
}

void Scheduler::drop_checkpoint_if_unused(RequestId request) {
  const auto found = checkpoints_.find(request);
  if (found == checkpoints_.end()) return;
  const auto first = waiting_.lower_bound(ArrivalOrder{.request = request, .choice = 0});
  const bool wanted = first != waiting_.end() && (*first)->age().request == request;
  if (!wanted) checkpoints_.erase(found);
}

/// Leaves out those that are under way in the other lane.
Sequence& Scheduler::youngest() const {
  const auto found = std::find_if(running_.rbegin(), running_.rend(),
                                  [](const Sequence* one) { return !one->is_under_way(); });
  require(found != running_.rend(), "scheduler: there is one to preempt");
  return **found;
}

void Scheduler::preempt_youngest() {
  Sequence& sequence = youngest();
  std::erase(running_, &sequence);
  sequence.release();
  waiting_.insert(&sequence);
  preempted_ = true;
  may_start_ = true;
  ++counts_.preemptions;
}

void Scheduler::audit(std::span<const Checkpoint* const> others) const {
  std::vector<const Memory*> memories;
  std::vector<const Checkpoint*> checkpoints = prefixes_->checkpoints();
  checkpoints.insert(checkpoints.end(), others.begin(), others.end());
  for (const Sequence* sequence : running_) memories.push_back(&sequence->memory());
  for (const auto& [request, checkpoint] : checkpoints_) checkpoints.push_back(&checkpoint);
  pool_->audit(memories, checkpoints);
  prefixes_->audit();
  require(std::is_sorted(running_.begin(), running_.end(), Older{}),
          "scheduler: running sequences are in order of arrival");
  for (const Sequence* sequence : waiting_) {
    require(sequence->memory().tables().empty() && sequence->memory().length() == 0,
            "scheduler: a waiting sequence holds no memory");
    require(!std::binary_search(running_.begin(), running_.end(), sequence, Older{}),
            "scheduler: no sequence both waits and runs");
  }
}

Scheduler::Admission Scheduler::admit(Sequence& sequence) {
  const auto prompt = checkpoints_.find(sequence.age().request);
  if (prompt != checkpoints_.end()) {
    if (admit_choice(sequence, prompt->second)) return Admission::started;
    if (!running_.empty()) return Admission::no_room;
    checkpoints_.erase(prompt);
  }
  const Awaited& awaited = sequence.awaited();
  if (awaited.comes()) return Admission::waits;
  if (awaited.owner && is_awaited(*awaited.owner, running_)) return Admission::waits;
  Lookup lookup;
  std::optional<Memory> memory;
  while (!memory) {
    lookup = prefixes_->look_up(sequence.known());
    if (publish_shared_prefix(sequence, lookup.resumable)) continue;
    if (follows(sequence, lookup.resumable)) return Admission::waits;
    if (!running_.empty() && !room_.make_for(sequence, lookup)) return Admission::no_room;
    memory = prefixes_->resume(lookup);
    while (!memory && room_.make(lookup.snapshot)) memory = prefixes_->resume(lookup);
    // When nothing else runs, a snapshot that there is no room to resume from is dropped.
    if (!memory && (!running_.empty() || !room_.make())) return Admission::no_room;
  }

  // A snapshot is wanted where it leaves what was seen before, in memory or in a tier.
  lookup.matched = std::max(lookup.matched, awaited.known_to_tier);
  const Request& request = sequence.request();
  if (!sequence.was_started() && request.keep_snapshots) {
    sequence.cuts() = Cuts(request.needed_later
                               ? prefixes_->cuts_at(lookup, sequence.prompt(), request.message_ends)
                               : prefixes_->cuts(lookup, sequence.prompt(), request.message_ends));
  }
  adopt(sequence, *std::move(memory),
        {.matched = lookup.matched,
         .snapshot = lookup.snapshot,
         .is_tracked = prefixes_->options().enabled,
         .source = lookup.source});
  return Admission::started;
}

bool Scheduler::admit_choice(Sequence& sequence, const Checkpoint& prompt) {
  if (!running_.empty() && !room_.make_for(sequence, {.resumable = prompt.length()})) return false;
  std::optional<Memory> memory = pool_->resume(prompt);
  while (!memory && room_.evict()) memory = pool_->resume(prompt);
  if (!memory) return false;
  adopt(sequence, *std::move(memory), {.matched = sequence.tokens(), .is_tracked = true});
  return true;
}

/// Returns whether it should wait for one that is running a prefix of its own, and has that one
/// leave a snapshot there.
bool Scheduler::follows(Sequence& sequence, std::int32_t resumable) {
  if (!prefixes_->options().enabled) return false;
  Awaited& awaited = sequence.awaited();
  awaited.owner = prefix_owner_for(sequence, resumable, limits_.shared_tokens_min, running_);
  if (!awaited.owner) return false;
  awaited.had_owner = true;
  ++counts_.prefix_waits;
  Sequence& owner = **std::ranges::lower_bound(running_, awaited.owner->age, {}, &Sequence::age);
  owner.cuts().add({.length = awaited.owner->length, .place = SnapshotPlace::branch});
  const std::int32_t stands = owner.memory().length();
  if (const std::int32_t tokens = plan_.unassign(owner); tokens > 0) {
    const std::int32_t first = owner.cuts().next(stands, stands + tokens) - stands;
    plan_.assign(owner, first, tokens - first);
  }
  return true;
}

/// Where sequences can be resumed at every position, the running one with the longest prefix in
/// common leaves a snapshot at once, if it is at least shared_tokens_min longer than `resumable`.
bool Scheduler::publish_shared_prefix(const Sequence& sequence, std::int32_t resumable) {
  if (!prefixes_->options().enabled || !resumes_anywhere(pool_->layout())) return false;
  std::int32_t longest = resumable + limits_.shared_tokens_min - 1;
  Sequence* owner = nullptr;
  for (Sequence* const other : running_) {
    const std::int32_t passed = other->memory().length();
    if (!other->request().keep_snapshots || passed <= longest) continue;
    const std::int32_t common =
        common_prefix(other->known().first(static_cast<std::size_t>(passed)), sequence.known());
    if (common <= longest) continue;
    longest = common;
    owner = other;
  }
  return owner != nullptr &&
         prefixes_->publish(owner->known(), owner->memory(), SnapshotPlace::branch);
}

void Scheduler::adopt(Sequence& sequence, Memory memory, const Resumed& resumed) {
  waiting_.erase(&sequence);
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, Older{}),
                  &sequence);
  sequence.start(std::move(memory), resumed);
  drop_checkpoint_if_unused(sequence.age().request);
  if (sequence.at_prompt_end()) release_choices(sequence);
}

}  // namespace hyb
