#pragma once

#include <memory>

#include "models/drafting/drafter.h"

namespace hyb::models {

/// Runs the draft layers that a checkpoint has itself, as Mtp says; its family reads them.
std::unique_ptr<Drafter> make_mtp_drafter(LayerRunner& layers, const StepLimits& limits);

}  // namespace hyb::models
