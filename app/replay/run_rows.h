#pragma once

#include <span>

#include "app/ui/table.h"
#include "core/base/json.h"
#include "core/replay/replay.h"

namespace hyb::app {

/// A row per run: token hit rate, FLOPs and seconds of prefill saved, evictions, flips, bytes by
/// owner.
Table runs_table(std::span<const ReplayRun> runs);

/// An array of the same rows, with every count.
Json runs_json(std::span<const ReplayRun> runs);

}  // namespace hyb::app
