#pragma once

#include <string>

#include "app/session.h"
#include "core/engine/engine.h"
#include "core/memory/prefix_tree.h"

namespace hyb::app {

/// What /mem shows: every byte of the budget by owner, and what the prefix tree made of its share.
std::string memory_text(const MemoryPlan& plan, const EngineUsage& usage);

/// The logits that are kept at ends of prompts, which the budget does not count; empty: none are.
std::string kept_logits_text(const PrefixTree& tree);

}  // namespace hyb::app
