#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine_usage.h"
#include "core/engine/side.h"
#include "core/engine/steps.h"

namespace hyb {

class SnapshotTier;

/// A step that ran beside those of the engine's runner has ended.
struct BesideStep {
  std::optional<FinishedStep> finished = {};  ///< empty: it was lost, and is run again
  /// Sequences that end with this error.
  std::vector<std::pair<Sequence*, std::string>> hopeless = {};
  bool was_waited_for = false;  ///< since nothing else could run
};

/// Says what the engine does next, one of these; neither: there is nothing to do.
struct NextStep {
  std::span<const Assignment> plan = {};  ///< its runner's next step, with memory reserved
  Clock::time_point begin = {};           ///< of this plan's making
  std::optional<BesideStep> beside = {};  ///< to be applied, then next() is called again
};

/// Knows where sequences run, and in which order steps follow each other: the engine asks what its
/// runner is to run next, and says what has failed and what has ended. What runs beside the steps
/// of that runner is launched in here, and its results come out as a NextStep. Called between its
/// steps, but for has_news().
class Lanes {
 public:
  virtual ~Lanes() = default;

  /// The memories: first that of the engine's runner, then that of prompts, if they have their own.
  virtual std::span<Side* const> sides() = 0;

  /// Evicted snapshots go to the tier, and are looked for there. At most once; it outlives this.
  virtual void add_tier(SnapshotTier& tier) = 0;

  /// The choices of one request wait for memory.
  virtual void add(std::span<Sequence* const> choices) = 0;

  /// Says what to do next. Waits where something else than the engine's runner has to come first.
  /// Throws what a step beside threw, which has failed then, what carrying out orders throws, and
  /// Error(memory) as Scheduler::plan().
  virtual NextStep next() = 0;

  /// While the engine's runner has a step: whether next() has something to do as soon as that has
  /// run, so that no other one is launched ahead.
  virtual bool has_news() = 0;

  /// Waits for what runs beside, if anything does. Throws what that threw.
  virtual std::optional<BesideStep> wait_beside() = 0;
  /// Returns whether a sequence of the request runs there.
  virtual bool runs_beside(RequestId) const { return false; }

  /// Releases the memory of a step of the engine's runner, or one of finished results.
  virtual void fail(const FailedStep& failed) = 0;

  /// The sequence has ended, and waits for nothing any more. Returns the side that it is to be
  /// removed from.
  virtual Side& leave(const Sequence& sequence) = 0;

  virtual std::int32_t running() = 0;  ///< sequences that hold memory
  virtual void add_to(EngineUsage& usage) = 0;
  /// `awaiting`: sequences that wait for a snapshot from elsewhere. `is_idle`: there are none at
  /// all. Throws where this does not add up: a bug of ours.
  virtual void audit(std::size_t awaiting, bool is_idle) = 0;
};

}  // namespace hyb
