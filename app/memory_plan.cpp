#include <fmt/format.h>

#include <algorithm>

#include "app/machine.h"
#include "app/model_outline.h"
#include "app/session.h"
#include "core/base/error.h"
#include "core/memory/footprint.h"
#include "kernels/card.h"

namespace hyb::app {
namespace {

/// Length of a sequence when neither the model nor the user states one.
constexpr std::int32_t length_default = 131072;

std::int32_t wanted_length(const models::Plan& plan, std::int32_t asked) {
  const std::int32_t own = plan.positions_max > 0 ? plan.positions_max : length_default;
  if (asked == 0) return own;
  if (plan.has_rope() && asked > own) {
    throw Error(
        ErrorKind::usage,
        fmt::format("--context {}: the model has positions for {} tokens only", asked, own));
  }
  return asked;
}

/// What can be asked for that needs less.
std::string smaller_text(const models::LoadOptions& load) {
  const bool is_plain = load.quantize == kernels::Quantize::none;
  std::string text;
  if (load.quantize != kernels::Quantize::q4) {
    text += fmt::format("{} makes the weights smaller, ",
                        is_plain ? "--quantize q8 or q4" : "--quantize q4");
  }
  return text + "a smaller --context the workspace";
}

[[noreturn]] void fail_too_small(const MemoryPlan& memory, std::size_t needed,
                                 const models::LoadOptions& load) {
  const std::string library =
      memory.library > 0 ? fmt::format("cuBLASLt {}, ", bytes_text(memory.library)) : "";
  throw Error(
      ErrorKind::memory,
      fmt::format("the model does not fit: it needs {} (weights {}, workspace {}, {}one short "
                  "sequence {}), --memory allows {}; {}",
                  bytes_text(needed), bytes_text(memory.weights), bytes_text(memory.workspace),
                  library, bytes_text(needed - memory.weights - memory.workspace - memory.library),
                  bytes_text(memory.budget), smaller_text(load)));
}

[[noreturn]] void fail_pools_too_small(const Budget& budget, std::size_t needed) {
  throw Error(ErrorKind::memory, fmt::format("--pool-memory allows {}, one short sequence needs {}",
                                             bytes_text(budget.pool_bytes), bytes_text(needed)));
}

}  // namespace

kernels::SuperblockMapOptions mapping_of(const PoolOptions& options, kernels::Device device) {
  kernels::SuperblockMapOptions mapping;
  const bool auto_is_remap = device == kernels::Device::cpu && !options.strict_vmm;
  if (options.mode == "remap" || (options.mode == "auto" && auto_is_remap)) {
    mapping.mode = kernels::MapMode::remap;
  }
  if (options.mode == "flat") mapping.mode = kernels::MapMode::flat;
  mapping.strict = options.strict_vmm;
  if (mapping.strict && mapping.mode != kernels::MapMode::flip) {
    throw Error(
        ErrorKind::usage,
        fmt::format("--strict-vmm: is of use with --memory-mode flip only, not {}", options.mode));
  }
  return mapping;
}

Budget budget_of(const ModelOptions& options) {
  const kernels::Device device = device_of(options.device);
  Budget budget(budget_bytes(parse_memory(options.memory), device));
  budget.device = device;
  if (!options.pool_memory.empty() && options.pool_memory != "auto") {
    budget.pool_bytes = budget_bytes(parse_memory(options.pool_memory, "--pool-memory"), device);
  }
  budget.library = kernels::queue_bytes(
      device, {.threads = 0, .isa = {}, .batch_invariant = options.batch_invariant});
  budget.mapping = mapping_of(options.pools, device);
  budget.packed_snapshots = options.reuse.snapshots == "int8";
  if (budget.packed_snapshots && budget.mapping.mode == kernels::MapMode::flat) {
    throw Error(ErrorKind::usage,
                "--snapshots int8: --memory-mode flat keeps no snapshots; use flip or remap");
  }
  return budget;
}

std::size_t budget_bytes(const MemoryBudget& budget, kernels::Device device) {
  const bool is_card = device == kernels::Device::cuda;
  switch (budget.kind) {
    case MemoryBudget::Kind::bytes:
      return budget.bytes;
    case MemoryBudget::Kind::share:
      return static_cast<std::size_t>(
          budget.share *
          static_cast<double>(is_card ? kernels::card().memory_bytes : machine_bytes()));
    case MemoryBudget::Kind::automatic:
      break;
  }
  const std::size_t available = is_card ? kernels::card().free_bytes : available_bytes();
  const std::size_t room = std::clamp(available / 8, std::size_t{256} << 20, std::size_t{2} << 30);
  return available > 2 * room ? available - room : available / 2;
}

models::RunnerOptions runner_options(const models::Plan& plan, const MemoryPlan& memory,
                                     const SessionShape& shape) {
  return {.memory = models::store_layout(memory.pools),
          .step_tokens = shape.chunk_tokens + shape.sequences_max,
          .step_rows = shape.sequences_max,
          .positions_max = memory.length_max,
          .vocab_used = plan.vocab,
          .mapping = memory.mapping};
}

MemoryPlan plan_memory(const models::Plan& plan, const models::Geometry& geometry,
                       const Budget& budget, std::int32_t context, int threads,
                       const SessionShape& shape) {
  MemoryPlan memory;
  memory.budget = budget.bytes;
  memory.mapping = budget.mapping;
  memory.length_max = wanted_length(plan, context);
  memory.weights = weight_bytes(plan, budget.device, geometry.load);
  memory.library = budget.library;

  const bool is_flat = budget.mapping.mode == kernels::MapMode::flat;
  const auto set_workspace = [&] {
    const models::RunnerOptions runner = runner_options(plan, memory, shape);
    memory.workspace =
        models::ModelRunner::workspace_bytes(budget.device, plan, geometry, runner, threads);
    memory.pinned = models::ModelRunner::pinned_bytes(budget.device, geometry, runner);
  };
  // With the tables of the longest sequence; how long that is pools of a size have still to say.
  memory.pools.layout.groups.resize(models::page_groups(geometry, is_flat));
  set_workspace();
  const std::size_t fixed = memory.weights + memory.workspace + memory.library;
  const std::size_t least = geometry.page_bytes + geometry.slot_bytes;
  if (fixed + least > budget.bytes) fail_too_small(memory, fixed + least, geometry.load);
  if (least > budget.pool_bytes) fail_pools_too_small(budget, least);

  models::MemoryLayoutOptions options;
  options.pool_bytes = std::min(budget.bytes - fixed, budget.pool_bytes);
  options.packed = budget.packed_snapshots;
  options.handle_bytes_min = kernels::handle_bytes_min(budget.device);
  if (is_flat) {
    options.flat = {.sequences = shape.sequences_max, .tokens = memory.length_max};
  }
  memory.pools = models::memory_layout_of(geometry, options);
  const MemoryLayout& layout = memory.pools.layout;
  memory.length_max = length_max(layout, memory.length_max, shape.chunk_tokens);
  set_workspace();
  memory.sequences = std::max(1, sequences_at_once(layout, memory.length_max, shape.sequences_max));
  return memory;
}

}  // namespace hyb::app
