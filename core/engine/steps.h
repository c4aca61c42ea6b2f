#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/engine/runner.h"
#include "core/engine/sequence.h"
#include "core/engine/step_plan.h"
#include "core/memory/prefix/prefill_cost.h"

namespace hyb {

class Side;
class Speculation;

/// When a finished step was launched, and when its tokens arrived.
struct StepTimes {
  Clock::time_point begin, end;
};

/// A step that has run. What it drew is to be applied to its sequences.
struct FinishedStep {
  Side* side;  ///< on which its sequences run
  /// Valid until the runner's next step has finished. Without a sequence: that has ended since.
  std::span<const Assignment> plan;
  std::span<const Span> spans;  ///< the plan's, and after them those of branches
  StepResult result;
  StepTimes times;
};

/// A step that has not, or whose results were applied in part.
struct FailedStep {
  Side* side;
  std::span<const Assignment> plan;  ///< its sequences may be gone
  std::span<const Order> orders;     ///< that rode in it
  /// These sequences and these orders are all that it can have written. False: nothing is known.
  bool is_known;
};

/// Makes the plan's spans, which keep their buffers from step to step, and after them those of
/// branches. False: some sequence has not begun its answer. `speculation`: null where it is off.
bool fill_step(Step& step, std::span<const Assignment> plan, Speculation* speculation);

/// Returns what a step that took this long says about prefill. nullopt: it had drafts, whose rows
/// cost what drafts cost, not what prompts do.
std::optional<PrefillStep> prefill_work(std::span<const Span> spans, Clock::duration elapsed);

/// The number of rows that are drawn.
std::size_t rows_of(const Step& step);

}  // namespace hyb
