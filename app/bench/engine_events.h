#pragma once

#include <cstdint>

#include "core/engine/engine.h"

namespace hyb::app {

/// What happened in an engine and its runner beside answers: nothing of it is free.
struct EngineEvents {
  std::int64_t steps = 0, failed_steps = 0;
  std::int64_t flips = 0;      ///< superblocks that changed their owner
  std::int64_t grown = 0;      ///< superblocks in use that were not before
  std::int64_t compacted = 0;  ///< pages and slots that were copied to empty a superblock
  std::int64_t snapshots = 0;  ///< that were taken
  std::int64_t resumes = 0;    ///< sequences that began from one
  std::int64_t evictions = 0;  ///< of snapshots
  std::int64_t preemptions = 0, deferrals = 0, prefix_waits = 0;
  std::int64_t graph_captures = 0, graph_replays = 0;  ///< on a card

  EngineEvents operator-(const EngineEvents& before) const;
  EngineEvents& operator+=(const EngineEvents& more);
};

/// All that has happened so far.
EngineEvents events_of(const EngineUsage& usage, std::int64_t graph_captures,
                       std::int64_t graph_replays);

}  // namespace hyb::app
