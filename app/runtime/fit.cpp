#include "app/runtime/fit.h"

#include "core/base/error.h"

namespace hyb::app {

MemoryPlan Fit::plan(std::int32_t context, std::int32_t sequences) const {
  return plan_memory(outline_->plan, outline_->geometry, budget_, context, threads_,
                     {.sequences_max = sequences,
                      .chunk_tokens = chunk_tokens_,
                      .drafts_room = budget_.drafts_room,
                      .tree = budget_.tree});
}

bool Fit::has_positions(std::int32_t length) const {
  const models::Plan& plan = outline_->plan;
  return !plan.has_rope() || plan.positions_max == 0 || length <= plan.positions_max;
}

bool Fit::holds(std::int32_t length, std::int32_t sequences) const {
  try {
    const MemoryPlan memory = plan(length, sequences);
    return memory.length_max >= length && memory.sequences >= sequences;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    return false;
  }
}

std::int32_t Fit::sequences_of(std::int32_t length) const {
  if (!has_positions(length) || !holds(length, 1)) return 0;
  std::int32_t good = 1;
  std::int32_t bad = sequences_max + 1;
  while (bad - good > 1) {
    const std::int32_t middle = good + (bad - good) / 2;
    (holds(length, middle) ? good : bad) = middle;
  }
  return good;
}

std::int32_t Fit::length_max() const { return plan(0, 1).length_max; }

}  // namespace hyb::app
