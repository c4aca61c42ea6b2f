#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/runner.h"

namespace hyb::sim {

/// For every span of a step the first of its sequence's: a span that goes on where the one before
/// it ends belongs to the same.
std::vector<std::size_t> first_spans(const Step& step);

/// What one span writes no other span reads or writes, but for those of its own sequence. Returns
/// the rule that the step breaks; null: none.
const char* broken_rule(const Step& step, std::int32_t page_tokens);

}  // namespace hyb::sim
