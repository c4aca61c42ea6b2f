#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "core/engine/drafter.h"

namespace hyb {

/// A step of single tokens that has ended.
struct DraftStep {
  std::int32_t sequences;     ///< one certain token each
  std::int32_t drafts = 0;    ///< of all of them
  std::int32_t accepted = 0;  ///< of these
  std::int32_t passes = 0;    ///< most drafts of a sequence: a drafter takes one pass for each
  std::int32_t drafting_sequences = 0;  ///< with drafts
  bool is_held_back = false;            ///< not launched ahead, since it might have had drafts
  /// All the time that the engine had for it alone, without the two below, and without what the
  /// certain tokens' draft entries took, which no number of drafts saves.
  double seconds = 0;
  double drafting_seconds = 0;   ///< before it; also where no draft came of it
  double preparing_seconds = 0;  ///< of sequences that are new to the drafter, before that
};

/// Decides how many drafts a sequence has in a step: a given number, or by what was measured. Then
/// it is the number with which the step yields the most tokens a second, where that is known from
/// the times of steps with as many rows, from what making drafts took, and from how many of the
/// sequence's were accepted so far. A pass of a drafter serves all sequences: each bears its share
/// of one in which all are. Drafts have to earn what they cost: over all steps they never lose more
/// than about a quarter of a step (of few sequences what a row of theirs costs), what a first pass
/// takes, and 0.5 % of the time, for which none that is planned needs to be right and new numbers
/// of rows may cost as much as those of plain steps; of those that share a pass half are counted on
/// once several were observed. What a drafter does once for a sequence is to be paid for while that
/// runs: what is not counts as lost. Answers do not depend on it.
class DraftPolicy {
 public:
  /// A step has one of these numbers of drafts for a sequence: few shapes of steps.
  static constexpr std::array<std::int32_t, 4> counts = {7, 5, 3, 1};

  /// `drafts`: of each sequence; 0: by what is measured.
  explicit DraftPolicy(std::int32_t drafts) : fixed_(drafts) {}

  /// Returns how many a sequence has of `available` drafts: the given number, or the largest of
  /// counts.
  std::int32_t count_of(std::int32_t available) const {
    return fixed_ > 0 && available >= fixed_ ? fixed_ : largest_count(available);
  }

  /// The largest of counts that is at most this; 0: none is.
  static constexpr std::int32_t largest_count(std::int32_t most) {
    for (const std::int32_t count : counts) {
      if (count <= most) return count;
    }
    return 0;
  }

  /// The next step has these sequences. `is_uniform`: they run one token each and nothing else
  /// runs.
  void plan(std::int32_t sequences, bool is_uniform);

  /// The most drafts that are worth asking for in the planned step; 0: none.
  std::int32_t wanted(const ArrivalOrder& sequence) const;

  /// Returns how many of `available` drafts the sequence should have in the planned step: one of
  /// counts, or 0. The caller adds what it has then.
  std::int32_t choose(const ArrivalOrder& sequence, std::int32_t available) const;
  void add(const ArrivalOrder& sequence, std::int32_t drafts);

  /// The first `accepted` of a sequence's drafts were drawn.
  void verified(const ArrivalOrder& sequence, std::int32_t drafts, std::int32_t accepted);

  /// A uniform step has ended. Returns the seconds that its drafts have cost more than they saved.
  double ran(const DraftStep& step);

  void forget(const ArrivalOrder& sequence);

 private:
  using Rates = std::array<double, drafts_max>;
  struct Record {
    Rates rates;              ///< by position: how often it is right when those before it are
    std::int32_t misses = 0;  ///< times in a row that no draft was right
    std::int64_t resume = 0;  ///< the step before which it has no drafts because of that
  };
  struct Cost {
    double seconds = 0;
    std::int64_t step = -1;  ///< when it was measured; -1: never
  };
  static constexpr std::int32_t rows_max = 256;     ///< steps with more have no drafts
  static constexpr std::int64_t steps_fresh = 256;  ///< an older measurement is made again
  static constexpr std::int64_t observed_min = 8;   ///< drafts, before what they save is counted on
  static constexpr double pass_min = 1.0 / 16;      ///< of a plain step: a pass worth sharing
  static constexpr double loss_share = 0.005;
  static constexpr double loss_steps = 0.25;     ///< at least: of few sequences one row costs more
  static constexpr double gain_steps_kept = 16;  ///< of plain steps: what may be lost again

  bool is_fresh(const Cost& cost) const {
    return cost.step >= 0 && steps_ - cost.step <= steps_fresh;
  }
  bool is_fresh(std::int32_t rows) const {
    return is_fresh(costs_[static_cast<std::size_t>(rows)]);
  }
  std::optional<double> cost(std::int32_t rows) const;
  double worst_cost(std::int32_t rows) const;
  bool may_try(const ArrivalOrder& sequence, std::int32_t count) const;
  bool may_share(const ArrivalOrder& sequence, std::int32_t count) const;
  std::int32_t passes_for_all() const;
  std::int32_t measured_pass(std::int32_t sequences) const;
  void learn(Cost& cost, double seconds) const;
  const Rates& rates_of(const ArrivalOrder& sequence) const;

  std::int32_t fixed_;
  std::array<Cost, rows_max + 1> costs_{};
  /// Times a drafter's passes by the sequences in them; [0] stays empty.
  std::array<Cost, rows_max + 1> pass_costs_{};
  Rates rates_ = {0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6};  ///< of all sequences
  std::int64_t observed_ = 0;  ///< drafts that were right, or the first that was wrong
  std::map<ArrivalOrder, Record> records_;
  std::int64_t steps_ = 0;
  double seconds_ = 0;          ///< of all uniform steps
  double lost_ = 0;             ///< seconds that drafts have cost more than they saved
  double unpaid_ = 0;           ///< seconds of preparing that these have not saved yet
  std::int32_t sequences_ = 0;  ///< of the planned step
  std::int32_t drafting_sequences_ = 0, passes_ = 0;
  std::int32_t passes_max_ = drafts_max;
  double may_cost_ = 0;    ///< seconds that it may take; 0: it has no drafts
  double pass_share_ = 0;  ///< seconds of a pass for each sequence; 0: not known, or nothing
  std::int32_t rows_ = 0;  ///< of it, so far
  double tokens_ = 0;      ///< that it is expected to yield
};

}  // namespace hyb
