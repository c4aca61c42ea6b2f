#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/engine/draft_policy.h"
#include "core/engine/draft_tree.h"
#include "core/engine/drafter.h"
#include "core/engine/engine_options.h"
#include "core/engine/engine_usage.h"
#include "core/engine/entry_policy.h"
#include "core/engine/step_plan.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

/// Adds drafts to planned steps, and learns from what became of them.
class Speculation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Now = std::function<Time()>;
  /// Runner::draft, after the pool's orders.
  using ModelDrafts = std::function<std::vector<std::vector<SampledToken>>(Step& step)>;

  /// All outlive this object. Throws Error(usage) for a number of drafts that no step has.
  /// `model_drafts` is called where the options say that the model drafts.
  Speculation(const SpeculationOptions& options, const PrefixCache& prefixes, StepPlan& step_plan,
              Now now, ModelDrafts model_drafts);

  /// Adds drafts to the entries of the plan, which was begun at this time, where they
  /// are worth it. Throws what the runner throws.
  void add_drafts(std::span<const Assignment> plan, Time planned);

  /// While the plan runs: whether it has drafts or the next step may have some, so that the next
  /// one cannot be foreseen.
  bool may_draft_next(std::span<const Assignment> plan);

  /// The first `accepted` of a sequence's drafts in a step were drawn, or as many of a branch.
  void verified(const Assignment& entry, std::int32_t accepted, bool is_branch);

  /// Returns whether the plan's step is to have draft entries. Sequences that ran without have no
  /// drafts.
  bool wants_entries(std::span<const Assignment> plan);

  /// When a step ran, and what of that its draft entries took.
  struct Ran {
    Time launched;
    Time end;  ///< the engine was free for the next one, or launched it
    double entry_seconds;
  };

  /// The plan has run. Drafts are charged with all that the engine does for a step, planning and
  /// applying included, since that is what fewer steps save; not with what its caller does between
  /// steps, nor with what the end of a sequence takes.
  void ran(std::span<const Assignment> plan, const Ran& times);
  /// A step of the prefill lane has run.
  void ran_beside(std::chrono::nanoseconds time, double entry_seconds);

  void forget(const Sequence& sequence);

  const SpeculationStats& stats() const { return stats_; }

 private:
  struct Tree {
    std::size_t entry;  ///< of the plan
    std::vector<DraftPath> paths;
  };

  bool wants_entries() const { return !entry_policy_ || entry_policy_->wants_entries(); }
  std::int32_t wanted(const Assignment& entry) const;
  std::int32_t reserve(const Assignment& entry, std::size_t at);
  void add_guesses(std::span<const Assignment> plan);
  void add_guess(const DraftJob& job, const Assignment& entry, std::size_t at);
  void set_guess(const DraftJob& job, std::size_t at);
  std::vector<DraftPath> with_room(std::vector<DraftPath> tree, DraftJob& job,
                                   const Assignment& entry) const;
  void add_branches();
  void add_model_drafts(std::span<const Assignment> plan);
  void want_alternatives();

  StepPlan* step_plan_;
  std::unique_ptr<Drafter> own_drafter_;
  Drafter* drafter_;  ///< null: the model drafts
  ModelDrafts model_drafts_;
  Step draft_step_;                           ///< of the model
  std::vector<SamplingParams> draft_params_;  ///< of its spans, where a tree is made of it
  DraftPolicy policy_;
  std::optional<EntryPolicy> entry_policy_;  ///< empty: all steps have draft entries
  std::set<ArrivalOrder> without_entries_;   ///< sequences some of whose steps had none
  TreeLimits tree_;
  Now now_;
  std::vector<DraftJob> jobs_;
  std::vector<std::size_t> entries_;  ///< of the plan, by job
  std::vector<Tree> trees_;           ///< of the plan, where there may be branches
  std::int32_t accepted_ = 0;         ///< in the step
  std::chrono::nanoseconds preparing_{0}, drafting_{0};
  std::chrono::nanoseconds adding_{0};  ///< of the step: what it took to add its drafts
  std::optional<Time> planned_;         ///< since when the step was; empty: it was launched ahead
  std::optional<Time> ended_;           ///< when the first sequence of it had ended
  bool may_draft_ = false;              ///< drafts keep the next step from being launched ahead
  bool is_held_back_ = false;           ///< they kept the step from it
  SpeculationStats stats_;
};

}  // namespace hyb
