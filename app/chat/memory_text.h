#pragma once

#include <string>

#include "app/session.h"
#include "core/engine/engine.h"

namespace hyb::app {

/// What /mem shows: every byte of the budget by owner, and what the prefix tree made of its share.
std::string memory_text(const MemoryPlan& plan, const EngineUsage& usage);

}  // namespace hyb::app
