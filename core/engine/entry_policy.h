#pragma once

#include <cstdint>

namespace hyb {

/// Decides whether steps compute what only a model's own drafts read (Step::draft_entries), by what
/// that takes and what drafts save. It is kept where it takes at most 1 % of the time. Where it
/// takes more, as in a small model, that is tried: a trial is some whole sequences, or many steps
/// of single tokens, and another one follows where drafts saved all but this share. Else there is
/// none until the loss is this share of the time since the trial began. Answers do not depend on
/// it.
class EntryPolicy {
 public:
  static constexpr double loss_share = 0.01;
  static constexpr std::int32_t trial_sequences = 8;
  static constexpr std::int32_t trial_steps = 1024;

  /// A step that has ended.
  struct Ran {
    double seconds;           ///< all that it took
    double entry_seconds;     ///< as StepResult::draft_entry_seconds
    double lost_seconds = 0;  ///< that its drafts have cost more than they saved
    bool is_uniform = false;  ///< each of its sequences ran one certain token
  };

  bool wants_entries() const { return is_trial_; }
  void ran(const Ran& step);

  /// A sequence has ended whose steps all had entries.
  void ended() { ++sequences_; }

 private:
  bool is_trial_ = true;
  double seconds_ = 0;  ///< since the trial began
  double entry_seconds_ = 0, lost_seconds_ = 0;
  std::int32_t sequences_ = 0, steps_ = 0;  ///< of the trial
};

}  // namespace hyb
