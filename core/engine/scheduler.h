#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/engine/sequence.h"
#include "core/memory/memory.h"

namespace hyb {

struct SchedulerLimits {
  std::int32_t sequences_max;  ///< that hold memory at once; at most the tokens of a step
  std::int32_t chunk_tokens;   ///< of one sequence in one step
  std::int32_t step_tokens;
};

/// What one sequence does in the next step.
struct Assignment {
  Sequence* sequence;
  std::int32_t tokens;
};

/// Decides who runs. Sequences that need one token come first, then chunks of prompts, oldest
/// first, then those that wait, strictly in order of age. When the pool is dry, checkpoints go
/// first, then the youngest sequence gives its memory back and waits; the oldest always gets on, so
/// every sequence ends. It holds no sequence: whoever adds one removes it before it dies.
class Scheduler {
 public:
  Scheduler(MemoryPool& pool, const SchedulerLimits& limits) : pool_(&pool), limits_(limits) {}

  /// The sequence waits for memory.
  void add(Sequence& sequence) { waiting_.insert(&sequence); }

  /// The sequence runs no more and its memory is released. It need not be known here.
  void remove(Sequence& sequence);

  /// Makes the point where `leader` stands resumable for the other choices of its request, if there
  /// is room for that. To be called before those are added.
  void share(Sequence& leader);

  /// Spans for the next step, with pages reserved. Empty only when nobody is here. Valid until the
  /// next call.
  std::span<const Assignment> plan();

  /// After a failed step no memory is to be trusted: all sequences wait to be computed again.
  void release_all();

  std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }

  /// Throws when pages, slots and sequences do not add up: a bug of ours.
  void audit() const;

 private:
  struct Older {
    using is_transparent = void;
    bool operator()(const Sequence* a, const Sequence* b) const { return a->age() < b->age(); }
    bool operator()(const Sequence* a, const Age& b) const { return a->age() < b; }
    bool operator()(const Age& a, const Sequence* b) const { return a < b->age(); }
  };

  void plan_single_tokens();
  void plan_chunks();
  void plan_newcomers();
  void assign(Sequence& sequence, std::int32_t tokens);
  bool assign_chunk(Sequence& sequence);
  bool is_assigned(const Sequence& sequence) const;
  bool admit(Sequence& sequence);
  bool has_pages_for(const Sequence& sequence, const Checkpoint* checkpoint) const;
  bool drop_checkpoint();
  void drop_checkpoint_if_unused(RequestId request);
  void preempt_youngest();

  MemoryPool* pool_;
  SchedulerLimits limits_;
  std::vector<Sequence*> running_;  ///< oldest first
  std::set<Sequence*, Older> waiting_;
  std::map<RequestId, Checkpoint> checkpoints_;  ///< prompts that more choices are to start from
  std::vector<Assignment> plan_;
  std::int32_t tokens_left_ = 0;
  bool preempted_ = false;
};

}  // namespace hyb
