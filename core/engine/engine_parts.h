#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/engine_usage.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"
#include "core/engine/speculation.h"
#include "core/memory/prefix/prefill_cost.h"

namespace hyb {

struct ActiveRequest {
  RequestTerms terms;
  Sink* sink;
  std::vector<std::unique_ptr<Sequence>> choices;  ///< null: ended
  std::size_t unfinished = 0;
};

/// The step that the runner has: which sequences run in it, and since when.
struct RunningStep {
  std::span<const Assignment> plan;  ///< the scheduler's; empty: no step is running
  Clock::time_point begin;
};

/// When a finished step was launched, and when its tokens arrived.
struct StepTimes {
  Clock::time_point begin, end;
};

/// The step that the prefill lane has. Everything else is of the other lane.
struct PrefillStepUnderWay {
  Step step;
  std::vector<Assignment> plan;  ///< empty: no step is under way
  Clock::time_point begin;
};

/// Makes the plan's spans, which keep their buffers from step to step, and after them those of
/// branches. False: some sequence has not begun its answer. `speculation`: empty where it is off.
bool fill_step(Step& step, std::span<const Assignment> plan,
               std::optional<Speculation>& speculation);

/// What a step that took this long says about prefill. nullopt: it had drafts, whose rows cost what
/// drafts cost, not what prompts do.
std::optional<PrefillStep> prefill_work(const Step& step, Clock::duration elapsed);

void add(EngineUsage& usage, const SchedulerCounts& counts);

}  // namespace hyb
