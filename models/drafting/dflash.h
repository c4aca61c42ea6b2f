#pragma once

#include <memory>

#include "models/config.h"
#include "models/drafting/draft_runner.h"
#include "models/families.h"
#include "models/plan.h"

namespace hyb::models {

/// Says whether config.json is a DFlash head's, by its architecture or by dflash_config.
bool is_dflash(const Config& config);

/// The draft layers that the head is for a model. Sources, where they agree: z-lab's model.py,
/// which the heads are published with, vLLM's qwen3_dflash.py, llama.cpp's dflash.cpp. A list of
/// layers names those that are read by what leaves them. Layers with windows are causal, all others
/// see their whole block, unless is_causal says of all that they are causal.
///
/// Throws Error(model) for what is not verified: DFlash-2 and DSpark (convolutions, a table of
/// successors, a Markov head), biases, sinks, windows in both directions, a vocabulary of its own,
/// another width or vocabulary than the model's, what leaves the last layer, a model with several
/// residual streams.
DraftLayer dflash_of(const Config& config, const Plan& plan);

/// The names of its tensors; of no model_type.
extern const Family dflash_head;

/// Runs them. `kind` is the plan's.
std::unique_ptr<DraftRunner> make_dflash_draft_runner(LayerRunner& layers, const Dflash& kind);

}  // namespace hyb::models
