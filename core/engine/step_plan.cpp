#include "core/engine/step_plan.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hyb {

void StepPlan::clear() {
  entries_.clear();
  drafts_ = 0;
  branches_ = 0;
  tokens_left_ = limits_.step_tokens;
  spans_spare_ = std::max(0, limits_.step_spans - limits_.sequences_max);
  for (Sequence* const sequence : *running_) {
    if (sequence->is_under_way()) continue;
    sequence->memory().drop_cuts();
    sequence->memory().drop_branches();
    sequence->drafted().drop_drafts();
  }
}

void StepPlan::assign(Sequence& sequence, std::int32_t tokens, std::int32_t more) {
  entries_.push_back({.sequence = &sequence, .tokens = tokens});
  tokens_left_ -= tokens;
  Memory& memory = sequence.memory();
  std::int32_t length = memory.length() + tokens;
  while (more > 0 && spans_spare_ > 0 && sequence.cuts().contains(length)) {
    const std::int32_t piece = sequence.cuts().next(length, length + more) - length;
    const std::int32_t growth = length + piece - memory.length();
    if (!MemoryDemand(*pool_).add_growth(memory, growth).add_slots(1).fits()) return;
    if (!memory.reserve(growth) || !memory.reserve_cut(length)) return;
    entries_.push_back({.sequence = &sequence, .tokens = piece, .cuts = memory.cuts_reserved()});
    tokens_left_ -= piece;
    --spans_spare_;
    length += piece;
    more -= piece;
  }
}

std::int32_t StepPlan::unassign(Sequence& sequence) {
  std::int32_t tokens = 0;
  for (const Assignment& entry : entries_) {
    if (entry.sequence == &sequence) tokens += entry.tokens;
  }
  std::erase_if(entries_, [&](const Assignment& entry) { return entry.sequence == &sequence; });
  tokens_left_ += tokens;
  spans_spare_ += sequence.memory().cuts_reserved();
  sequence.memory().drop_cuts();
  return tokens;
}

std::int32_t StepPlan::draft_room(const Assignment& entry) const {
  if (entry.tokens != 1 || entry.cuts > 0 || entry.drafts > 0) return 0;
  if (entry.sequence->memory().cuts_reserved() > 0) return 0;
  if (pool_->layout().has_slots() && !pool_->layout().has_rings()) return 0;
  const std::int32_t most = pool_->layout().has_slots() ? pool_->layout().ring_tokens : drafts_max;
  const auto rows = static_cast<std::int32_t>(entries_.size()) + drafts_;
  return std::max(
      0, std::min({most, tokens_left_, limits_.step_samples - rows, entry.sequence->draft_room()}));
}

bool StepPlan::add_drafts(std::size_t at, std::span<const TokenId> drafts) {
  if (!reserve_drafts(at, static_cast<std::int32_t>(drafts.size()))) return false;
  set_drafts(at, drafts);
  return true;
}

bool StepPlan::reserve_drafts(std::size_t at, std::int32_t count) {
  Assignment& entry = entries_[at];
  require(count <= draft_room(entry), "step plan: a step has room for its drafts");
  Memory& memory = entry.sequence->memory();
  if (!has_memory_for_drafts(*entry.sequence, 1 + count)) return false;
  if (!memory.reserve_ring() || !memory.reserve(1 + count)) return false;
  entry.drafts = count;
  drafts_ += count;
  tokens_left_ -= count;
  return true;
}

void StepPlan::set_drafts(std::size_t at, std::span<const TokenId> drafts) {
  Assignment& entry = entries_[at];
  require(std::ssize(drafts) <= entry.drafts, "step plan: memory was reserved for drafts");
  entry.drafts = static_cast<std::int32_t>(drafts.size());
  entry.sequence->drafted().set_drafts(drafts);
}

/// Where more is needed than the sequence has, the others keep a page of each group that they may
/// need next.
bool StepPlan::has_memory_for_drafts(const Sequence& sequence, std::int32_t tokens) const {
  const Memory& memory = sequence.memory();
  const bool needs_ring = pool_->layout().has_rings() && memory.ring() == no_ring;
  if (!needs_ring && memory.length() + tokens <= memory.room()) return true;
  MemoryDemand demand(*pool_);
  if (needs_ring) demand.add_ring();
  demand.add_growth(memory, tokens);
  return fits_beside_others(sequence, std::move(demand));
}

bool StepPlan::fits_beside_others(const Sequence& sequence, MemoryDemand demand) const {
  for (const Sequence* const other : *running_) {
    if (other != &sequence) demand.add_running(*other);
  }
  return demand.fits();
}

bool StepPlan::add_branch(std::size_t at, std::span<const TokenId> drafts, std::int32_t shared) {
  Assignment& entry = entries_[at];
  const auto tokens = static_cast<std::int32_t>(1 + drafts.size()), own = tokens - 1 - shared;
  const std::int32_t rows = static_cast<std::int32_t>(entries_.size()) + drafts_ + own;
  Sequence& sequence = *entry.sequence;
  require(entry.drafts > 0, "step plan: a branch is beside drafts");
  if (branches_ >= limits_.step_branches || tokens > tokens_left_) return false;
  if (rows > limits_.step_samples) return false;
  if (!fits_beside_others(sequence, MemoryDemand(*pool_).add_branch(sequence.memory(), tokens))) {
    return false;
  }
  if (!sequence.memory().reserve_branch(tokens)) return false;
  require(tokens - 1 <= sequence.draft_room(), "step plan: a branch has room");
  sequence.drafted().add_branch(drafts, shared);
  ++entry.branches;
  entry.branch_drafts += own;
  ++branches_;
  drafts_ += own;
  tokens_left_ -= tokens;
  return true;
}

}  // namespace hyb
