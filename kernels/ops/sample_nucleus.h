#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/sample_select.h"

namespace hyb::kernels {

/// Sets to zero all weights but the fewest largest ones whose sum reaches `mass`; of equals the
/// lower ids stay. Weights are between 0 and 1. `room` has a place for every weight.
void keep_nucleus(std::span<float> weights, double mass, std::span<Candidate> room);

}  // namespace hyb::kernels
