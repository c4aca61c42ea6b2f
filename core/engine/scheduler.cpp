#include "core/engine/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace hyb {

void Scheduler::remove(Sequence& sequence) {
  std::erase(running_, &sequence);
  waiting_.erase(&sequence);
  sequence.release();
  drop_checkpoint_if_unused(sequence.age().request);
}

void Scheduler::share(Sequence& leader) {
  std::optional<Checkpoint> checkpoint = leader.memory().checkpoint();
  if (checkpoint) checkpoints_.insert_or_assign(leader.age().request, *std::move(checkpoint));
}

std::span<const Assignment> Scheduler::plan() {
  plan_.clear();
  tokens_left_ = limits_.step_tokens;
  preempted_ = false;
  plan_single_tokens();
  plan_chunks();
  // Who was just sent away does not come straight back.
  if (!preempted_) plan_newcomers();
  require(!plan_.empty() || (running_.empty() && waiting_.empty()),
          "scheduler: somebody can always go on");
  return plan_;
}

void Scheduler::release_all() {
  for (Sequence* sequence : running_) {
    sequence->release();
    waiting_.insert(sequence);
  }
  running_.clear();
  checkpoints_.clear();
}

/// From the oldest on, so whoever is preempted has nothing assigned yet.
void Scheduler::plan_single_tokens() {
  for (std::size_t i = 0; i < running_.size() && tokens_left_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.pending() != 1) continue;
    while (i < running_.size() && !sequence.memory().reserve(1)) {
      if (!drop_checkpoint()) preempt_youngest();
    }
    if (i < running_.size()) assign(sequence, 1);
  }
}

void Scheduler::plan_chunks() {
  for (std::size_t i = 0; i < running_.size() && tokens_left_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (is_assigned(sequence)) continue;
    while (!assign_chunk(sequence)) {
      if (drop_checkpoint()) continue;
      // A younger one that runs in this step will end and free its pages; an idle one only sits on
      // them.
      Sequence& youngest = *running_.back();
      if (&youngest == &sequence || is_assigned(youngest)) break;
      preempt_youngest();
    }
  }
}

void Scheduler::plan_newcomers() {
  while (tokens_left_ > 0 && !waiting_.empty() && running() < limits_.sequences_max) {
    Sequence& sequence = **waiting_.begin();
    if (!admit(sequence)) return;
    while (!assign_chunk(sequence)) {
      if (!drop_checkpoint()) return;
    }
  }
}

void Scheduler::assign(Sequence& sequence, std::int32_t tokens) {
  plan_.push_back({.sequence = &sequence, .tokens = tokens});
  tokens_left_ -= tokens;
}

/// As much as there is room for; false when that is nothing.
bool Scheduler::assign_chunk(Sequence& sequence) {
  const std::int32_t wanted = std::min({sequence.pending(), limits_.chunk_tokens, tokens_left_});
  Memory& memory = sequence.memory();
  std::int32_t tokens = wanted;
  if (!memory.reserve(wanted)) {
    tokens = std::min(wanted, memory.room() - memory.length());
  }
  if (tokens <= 0) return false;
  assign(sequence, tokens);
  return true;
}

bool Scheduler::is_assigned(const Sequence& sequence) const {
  return std::any_of(plan_.begin(), plan_.end(),
                     [&](const Assignment& entry) { return entry.sequence == &sequence; });
}

bool Scheduler::admit(Sequence& sequence) {
  const auto found = checkpoints_.find(sequence.age().request);
  const Checkpoint* checkpoint = found == checkpoints_.end() ? nullptr : &found->second;
  if (!running_.empty() && !has_pages_for(sequence, checkpoint)) return false;

  std::optional<Memory> memory =
      checkpoint != nullptr ? pool_->resume(*checkpoint) : pool_->start();
  // Alone, it waits for nobody: whatever is held is held by checkpoints.
  while (!memory && running_.empty() && drop_checkpoint()) memory = pool_->start();
  if (!memory) return false;

  waiting_.erase(&sequence);
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, Older{}),
                  &sequence);
  sequence.start(*std::move(memory));
  drop_checkpoint_if_unused(sequence.age().request);
  return true;
}

/// Free pages must do for all tokens known of it and of those that run, and one page more for each
/// that runs: starting what is soon preempted again is wasted work.
bool Scheduler::has_pages_for(const Sequence& sequence, const Checkpoint* checkpoint) const {
  for (std::int32_t group = 0; group < pool_->groups(); ++group) {
    std::int32_t needed = pool_->pages_for(sequence.tokens() + 1) + running();
    if (checkpoint != nullptr) needed -= checkpoint->length() / pool_->page_tokens();
    for (const Sequence* other : running_) {
      const PageTable& table = other->memory().tables()[static_cast<std::size_t>(group)];
      const auto held = static_cast<std::int32_t>(table.size());
      needed += std::max(0, pool_->pages_for(other->tokens()) - held);
    }
    if (needed > pool_->pages_free(group)) return false;
  }
  return true;
}

/// The youngest; its choices will compute their prompt themselves.
bool Scheduler::drop_checkpoint() {
  if (checkpoints_.empty()) return false;
  checkpoints_.erase(std::prev(checkpoints_.end()));
  return true;
}

void Scheduler::drop_checkpoint_if_unused(RequestId request) {
  const auto found = checkpoints_.find(request);
  if (found == checkpoints_.end()) return;
  const auto first = waiting_.lower_bound(Age{.request = request, .choice = 0});
  const bool wanted = first != waiting_.end() && (*first)->age().request == request;
  if (!wanted) checkpoints_.erase(found);
}

void Scheduler::preempt_youngest() {
  Sequence& sequence = *running_.back();
  running_.pop_back();
  sequence.release();
  waiting_.insert(&sequence);
  preempted_ = true;
}

void Scheduler::audit() const {
  std::vector<const Memory*> memories;
  std::vector<const Checkpoint*> checkpoints;
  for (const Sequence* sequence : running_) memories.push_back(&sequence->memory());
  for (const auto& [request, checkpoint] : checkpoints_) checkpoints.push_back(&checkpoint);
  pool_->audit(memories, checkpoints);
  require(std::is_sorted(running_.begin(), running_.end(), Older{}),
          "scheduler: running sequences stand in order of age");
  for (const Sequence* sequence : waiting_) {
    require(sequence->memory().tables().empty() && sequence->memory().length() == 0,
            "scheduler: who waits holds no memory");
    require(std::find(running_.begin(), running_.end(), sequence) == running_.end(),
            "scheduler: nobody both waits and runs");
  }
}

}  // namespace hyb
