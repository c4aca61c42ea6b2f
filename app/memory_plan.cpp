#include <fmt/format.h>

#include <algorithm>

#include "app/machine.h"
#include "app/session.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

/// Length of a sequence when neither the model nor the user states one.
constexpr std::int32_t length_default = 131072;

std::int32_t wanted_length(const models::Plan& plan, std::int32_t asked) {
  const std::int32_t own = plan.positions_max > 0 ? plan.positions_max : length_default;
  if (asked == 0) return own;
  if (plan.has_rope && asked > own) {
    throw Error(
        ErrorKind::usage,
        fmt::format("--context {}: the model has positions for {} tokens only", asked, own));
  }
  return asked;
}

[[noreturn]] void fail_too_small(const MemoryPlan& memory, std::size_t needed) {
  throw Error(
      ErrorKind::memory,
      fmt::format("the model does not fit: it needs {} (weights {}, workspace {}, one short "
                  "sequence {}), --memory allows {}",
                  bytes_text(needed), bytes_text(memory.weights), bytes_text(memory.workspace),
                  bytes_text(needed - memory.weights - memory.workspace),
                  bytes_text(memory.budget)));
}

[[noreturn]] void fail_pools_too_small(const Budget& budget, std::size_t needed) {
  throw Error(ErrorKind::memory, fmt::format("--pool-memory allows {}, one short sequence needs {}",
                                             bytes_text(budget.pool_bytes), bytes_text(needed)));
}

}  // namespace

Budget budget_of(const ModelOptions& options) {
  const std::size_t all = budget_bytes(parse_memory(options.memory));
  if (options.pool_memory.empty() || options.pool_memory == "auto") return all;
  return {all, budget_bytes(parse_memory(options.pool_memory, "--pool-memory"))};
}

std::size_t budget_bytes(const MemoryBudget& budget) {
  switch (budget.kind) {
    case MemoryBudget::Kind::bytes:
      return budget.bytes;
    case MemoryBudget::Kind::share:
      return static_cast<std::size_t>(budget.share * static_cast<double>(machine_bytes()));
    case MemoryBudget::Kind::automatic:
      break;
  }
  const std::size_t available = available_bytes();
  const std::size_t room = std::clamp(available / 8, std::size_t{256} << 20, std::size_t{2} << 30);
  return available > 2 * room ? available - room : available / 2;
}

models::RunnerOptions runner_options(const models::Plan& plan, const MemoryPlan& memory,
                                     const SessionShape& shape) {
  return {.memory = memory.layout,
          .step_tokens = shape.chunk_tokens + shape.sequences_max,
          .step_rows = shape.sequences_max,
          .positions_max = memory.length_max,
          .vocab_used = plan.vocab};
}

MemoryPlan plan_memory(const models::Plan& plan, const models::Geometry& geometry,
                       const Budget& budget, std::int32_t context, int threads,
                       const SessionShape& shape) {
  MemoryPlan memory;
  memory.budget = budget.bytes;
  memory.length_max = wanted_length(plan, context);
  memory.weights = models::packed_bytes(plan, geometry.activation_dtype);
  memory.workspace = models::ModelRunner::workspace_bytes(
      plan, geometry, runner_options(plan, memory, shape), threads);

  const std::size_t fixed = memory.weights + memory.workspace;
  const std::size_t least = geometry.page_bytes + 2 * geometry.slot_bytes;
  if (fixed + least > budget.bytes) fail_too_small(memory, fixed + least);
  if (least > budget.pool_bytes) fail_pools_too_small(budget, least);
  const std::size_t pools = std::min(budget.bytes - fixed, budget.pool_bytes);

  const std::int64_t page = geometry.page_tokens;
  const std::int64_t per_sequence = (memory.length_max + page - 1) / page;
  std::int64_t pages_wanted = 0;
  if (geometry.page_bytes != 0) {
    pages_wanted = std::min({per_sequence * shape.sequences_max, std::int64_t{1} << 30,
                             static_cast<std::int64_t>(pools / geometry.page_bytes)});
  }

  // One slot more than sequences: a checkpoint hands its slot over while the next one is taken.
  // Slots may take what the pages leave, and half of the pools in any case; the sequences that then
  // lack one wait their turn.
  const std::int32_t slots_wanted = shape.sequences_max + 1;
  if (geometry.slot_bytes != 0) {
    const std::size_t pages_bytes = static_cast<std::size_t>(pages_wanted) * geometry.page_bytes;
    const std::size_t room = std::max(pools / 2, pools - pages_bytes);
    const auto affordable = static_cast<std::int64_t>(room / geometry.slot_bytes);
    memory.slots = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(affordable, 2, std::int64_t{slots_wanted}));
    memory.slots_bytes = static_cast<std::size_t>(memory.slots) * geometry.slot_bytes;
  }
  memory.sequences = geometry.slot_bytes == 0 ? shape.sequences_max : memory.slots - 1;
  if (geometry.page_bytes != 0) {
    const auto affordable =
        static_cast<std::int64_t>((pools - memory.slots_bytes) / geometry.page_bytes);
    const std::int64_t pages = std::min(affordable, pages_wanted);
    memory.pages = static_cast<std::int32_t>(pages);
    memory.pages_bytes = static_cast<std::size_t>(pages) * geometry.page_bytes;
    memory.length_max =
        static_cast<std::int32_t>(std::min<std::int64_t>(memory.length_max, pages * page));
    memory.sequences = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        pages / std::min(per_sequence, pages), 1, std::int64_t{memory.sequences}));
  }
  memory.layout = models::flat_memory(geometry, memory.pages, memory.slots);
  return memory;
}

}  // namespace hyb::app
