#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/sample.h"

namespace hyb::kernels {

/// True where the history matters.
bool has_penalties(const SampleRow& row);

/// True where a row's logits are not sampled as they are.
bool has_adjustments(const SampleRow& row);

/// Applies bans, penalties and biases to a copy of the row's logits. `counts` is scratch, one per
/// logit, with any content.
void adjust_logits(const SampleRow& row, std::span<float> logits, std::span<std::int32_t> counts);

}  // namespace hyb::kernels
