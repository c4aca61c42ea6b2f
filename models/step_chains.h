#pragma once

#include "core/engine/runner.h"

namespace hyb::models {

/// Whether a span goes on where the one in front of it in the step ends. Such spans are a chain:
/// one sequence, cut where its recurrent state is wanted. Where there are no slots, its page tables
/// tell.
bool goes_on(const Span& before, const Span& span);
bool has_chain(const Step& step);

/// The rules that a step of a model with recurrent state keeps: spans write different slots, and
/// one reads what another writes only where it goes on there, with the next position and the same
/// page tables. A broken one is a bug of the caller.
void check_chains(const Step& step);

}  // namespace hyb::models
