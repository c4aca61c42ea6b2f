#pragma once

#include <memory>

#include "models/drafting/draft_runner.h"

namespace hyb::models {

/// Runs the draft layers that a checkpoint has itself, as Mtp says; its family reads them.
std::unique_ptr<DraftRunner> make_mtp_draft_runner(LayerRunner& layers, const StepLimits& limits);

}  // namespace hyb::models
