#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/memory_demand.h"
#include "core/engine/sequence.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

struct SchedulerLimits {
  std::int32_t sequences_max;     ///< that hold memory at once; at most the tokens of a step
  std::int32_t chunk_tokens;      ///< of one sequence in one step
  std::int32_t mixed_tokens = 0;  ///< of prompts, in a step with single tokens; 0: no such limit
  std::int32_t step_tokens;
  std::int32_t step_spans = 0;          ///< below sequences_max: sequences_max
  std::int32_t step_samples = 0;        ///< sampled rows; more than sequences: there may be drafts
  std::int32_t step_branches = 0;       ///< of drafts
  std::int32_t shared_tokens_min = 64;  ///< fewer are run again instead of waited for
  std::int32_t look_ahead = 8;          ///< waiting sequences whose snapshots are pinned
};

/// Says what one sequence does in the next step, or one of several consecutive pieces of it: after
/// each but the last a snapshot is wanted.
struct Assignment {
  Sequence* sequence;
  std::int32_t tokens;
  std::int32_t cuts = 0;           ///< pieces of the sequence before this one
  std::int32_t drafts = 0;         ///< after these tokens
  std::int32_t branches = 0;       ///< beside these drafts
  std::int32_t branch_drafts = 0;  ///< of these branches alone
};

/// The plan of a step while it is made: what is assigned, with its memory reserved, and what room
/// the step has left. Which sequences run is the scheduler's business, which have drafts that of
/// Speculation.
class StepPlan {
 public:
  /// All outlive this; `running` are the sequences that hold memory.
  StepPlan(MemoryPool& pool, const SchedulerLimits& limits, const std::vector<Sequence*>& running)
      : pool_(&pool), limits_(limits), running_(&running) {}

  /// An empty plan. What sequences have of a plan whose step never ran is dropped, but for those
  /// under way in another lane.
  void clear();

  std::span<const Assignment> entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  std::int32_t tokens_left() const { return tokens_left_; }
  void limit_tokens(std::int32_t most) { tokens_left_ = std::min(tokens_left_, most); }

  /// Adds the sequence's next tokens, for which it has memory; and up to `more` after them, in
  /// pieces after cuts, as long as nothing is evicted for that.
  void assign(Sequence& sequence, std::int32_t tokens, std::int32_t more = 0);
  /// Removes the sequence. Returns the number of its tokens.
  std::int32_t unassign(Sequence& sequence);

  /// Most drafts that the entry may have; memory is another matter.
  std::int32_t draft_room(const Assignment& entry) const;
  /// Takes memory for `count` drafts of entry `at`, at most draft_room(), where there is some for
  /// them and for a page of every running sequence besides: drafts take no memory from others.
  /// False: there is not.
  bool reserve_drafts(std::size_t at, std::int32_t count);
  /// Sets as many drafts as were reserved, or fewer.
  void set_drafts(std::size_t at, std::span<const TokenId> drafts);
  bool add_drafts(std::size_t at, std::span<const TokenId> drafts);
  /// Adds a branch to an entry that has drafts, under the same conditions. The first `shared` of
  /// its drafts are those of an earlier path. False: the step or the memory has no room for it.
  bool add_branch(std::size_t at, std::span<const TokenId> drafts, std::int32_t shared);

 private:
  bool has_memory_for_drafts(const Sequence& sequence, std::int32_t tokens) const;
  bool fits_beside_others(const Sequence& sequence, MemoryDemand demand) const;

  MemoryPool* pool_;
  SchedulerLimits limits_;
  const std::vector<Sequence*>* running_;
  std::vector<Assignment> entries_;
  std::int32_t tokens_left_ = 0;
  std::int32_t spans_spare_ = 0;  ///< beyond one for each sequence
  std::int32_t drafts_ = 0;       ///< those of branches too
  std::int32_t branches_ = 0;
};

}  // namespace hyb
