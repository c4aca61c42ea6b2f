#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/io/tensor_files.h"
#include "models/config.h"
#include "models/drafting/draft_runner.h"
#include "models/families.h"
#include "models/plan.h"

namespace hyb::models {

/// Says whether config.json is such a head's, by its architecture or its vocabulary for drafts.
bool is_eagle3(const Config& config);

/// The draft layer that the head is for a model. Sources, where they agree: SGLang's
/// llama_eagle3.py and set_eagle3_layers_to_capture, vLLM's llama_eagle3.py, SafeAILab's cnets.py
/// and modeling_llama_kv.py.
///
/// Without a list what is read of the model enters its layers 2, n/2 and n-3, as in all three. A
/// list under eagle_config names the layers that it leaves, as SGLang reads SpecForge's configs
/// (plus one); one at top level those that it enters, as vLLM reads the speculators format.
///
/// Throws Error(model) for what is not verified: more than one layer, tensors or biases or norms
/// that those sources do not have, another width than the model's, layers that are not three in
/// ascending order, what leaves the last layer, a model with several residual streams.
DraftLayer eagle3_of(const Config& config, const Plan& plan);

/// The names of its tensors; of no model_type.
extern const Family eagle3_head;

/// Returns the column of the head's logits for each token of the model; -1 without one. d2t has in
/// entry i what is added to i; a head with the model's vocabulary may lack it. Throws Error(model)
/// for a table of another shape or type, a token that the model has not or that two entries name,
/// and where t2d, if it is there, says otherwise. The files are mapped.
std::vector<std::int32_t> eagle3_columns(const Plan& plan, const TensorFiles& files);

/// The same of a head with made-up weights: tokens spread over the vocabulary.
std::vector<std::int32_t> spread_eagle3_columns(const Plan& plan);

/// Runs it. `kind` is the plan's.
std::unique_ptr<DraftRunner> make_eagle3_draft_runner(LayerRunner& layers, const StepLimits& limits,
                                                      const Eagle3& kind);

}  // namespace hyb::models
