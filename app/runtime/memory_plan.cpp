#include "app/runtime/memory_plan.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/machine/environment.h"
#include "app/runtime/draft_model.h"
#include "app/runtime/model_outline.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/memory/pool/layout.h"
#include "kernels/arena/superblocks.h"
#include "kernels/card.h"
#include "kernels/card_copies.h"

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

/// Options that need less memory.
std::string smaller_text(const models::LoadOptions& load, bool fits_in_12_bits) {
  const std::string weights = smaller_weights_text(load, fits_in_12_bits);
  return (weights.empty() ? "" : weights + "; ") +
         "a smaller --context makes the workspace smaller";
}

[[noreturn]] void fail_too_small(const MemoryPlan& memory, std::size_t needed,
                                 const models::LoadOptions& load, kernels::Device device,
                                 bool fits_in_12_bits) {
  const bool is_card = device == kernels::Device::cuda;
  const std::string library =
      memory.library > 0 ? fmt::format("cuBLASLt {}, ", bytes_text(memory.library)) : "";
  throw Error(
      ErrorKind::memory,
      fmt::format("the model does not fit: with one short sequence it needs {} (weights {}, "
                  "workspace {}, {}the sequence {}), --memory allows {}{}; {}",
                  bytes_text(needed), bytes_text(memory.weights), bytes_text(memory.workspace),
                  library, bytes_text(needed - memory.weights - memory.workspace - memory.library),
                  bytes_text(memory.budget), is_card ? "" : limit_note(memory_limits(), needed),
                  smaller_text(load, fits_in_12_bits)));
}

[[noreturn]] void fail_pools_too_small(const Budget& budget, std::size_t needed) {
  throw Error(ErrorKind::memory, fmt::format("--pool-memory allows {}, one short sequence needs {}",
                                             bytes_text(budget.pool_bytes), bytes_text(needed)));
}

/// Time that a card's driver may take to create pools and to map them.
constexpr double start_seconds_max = 1.0;

/// Returns what a process has on the CPU besides weights, workspace and pools, by measured peaks of
/// Pss: code and tables take 24 MiB.
std::size_t process_bytes(const ModelSource& source) {
  return (std::size_t{24} << 20) + source.tokenizer_bytes();
}

}  // namespace

Budget budget_of(const RunSettings& settings) {
  const kernels::Device device = settings.device;
  const std::size_t all = settings.memory.bytes;
  Budget budget(all);
  budget.draft_model = draft_model_bytes(settings);
  budget.bytes -= std::min(all, budget.draft_model);
  budget.device = device;
  if (device == kernels::Device::cpu) budget.addresses = free_addresses();
  if (device == kernels::Device::cuda) {
    const std::vector<int>& cards = settings.cards;
    const kernels::Card card = kernels::card(cards.front());
    budget.cards = static_cast<int>(cards.size());
    budget.rates = {.bytes_per_s = card.bytes_per_s, .flops_per_s = card.flops_per_s};
    const double call_seconds = kernels::driver_call_seconds(device, cards.front());
    if (call_seconds > 0) {
      budget.driver_calls_max = static_cast<std::size_t>(start_seconds_max / call_seconds) + 1;
    }
  }
  budget.pool_bytes = settings.pool_memory.value_or(Budget::unlimited);
  if (device == kernels::Device::cpu) budget.process = process_bytes(settings.source);
  budget.library = kernels::queue_bytes(
      device, {.threads = 0, .isa = {}, .batch_invariant = settings.batch_invariant});
  budget.mapping = settings.mapping;
  budget.packed_snapshots = settings.reuse.snapshots == Precision::int8;
  budget.drafts_room = settings.drafts.drafts_room;
  budget.tree = settings.drafts.tree;
  if (!settings.lanes || settings.lanes->have_two_cards()) return budget;
  budget.prefill_threads = settings.lanes->prefill.threads;
  budget.library *= 2;
  budget.memories = settings.lanes->share_memory ? 1 : 2;
  return budget;
}

HostTierParts host_tier_parts(std::size_t bytes, const models::Geometry& geometry,
                              std::size_t disk_bytes) {
  HostTierParts parts{};
  const std::size_t unit_bytes = std::max(geometry.slot_bytes, geometry.page_bytes);
  const std::size_t unit = unit_bytes + unit_bytes / 2;
  parts.copies = std::max(std::min(bytes / 16, std::size_t{256} << 20), 2 * unit);
  parts.reads = 2 * std::max(std::min(bytes / 16, std::size_t{256} << 20), unit);
  parts.index = std::min(std::max(bytes, disk_bytes) / 64, std::size_t{64} << 20);
  const std::size_t taken = parts.copies + parts.reads + parts.index;
  if (bytes < 2 * taken) {
    throw Error(ErrorKind::usage,
                fmt::format("--host-tier: copies of this model's states take {}; give at least {}",
                            bytes_text(taken), bytes_text(2 * taken)));
  }
  parts.snapshots = bytes - taken;
  return parts;
}

namespace {

/// Rows of logits take memory, so not all of many sequences have the most drafts.
std::int32_t step_samples_of(const SessionShape& shape) {
  constexpr std::int32_t draft_rows_max = 56;
  const std::int32_t each = std::max(shape.drafts_room, shape.tree.rows - 1);
  return shape.sequences_max + std::min(each * shape.sequences_max, draft_rows_max);
}

/// Each runs two tokens at least.
std::int32_t step_branches_of(const SessionShape& shape) {
  constexpr std::int32_t branches_max = 32;
  if (shape.drafts_room == 0 || shape.tree.branches == 1) return 0;
  return std::min(shape.tree.rows / 2 * shape.sequences_max, branches_max);
}

}  // namespace

models::RunnerOptions runner_options(const models::Plan& plan, const MemoryPlan& memory,
                                     const SessionShape& shape) {
  return {.memory = memory.pools,
          .step_tokens = memory.chunk_tokens + shape.sequences_max,
          .sequences_max = shape.sequences_max,
          .positions_max = memory.length_max,
          .vocab_used = plan.vocab,
          .mapping = memory.mapping,
          .side_copies = memory.side_copies,
          .step_samples = step_samples_of(shape),
          .step_branches = step_branches_of(shape)};
}

namespace {

/// Each has addresses for all superblocks.
std::size_t views_in_use(const MemoryLayout& layout) {
  std::size_t count = 0;
  for (std::int32_t v = 0; v < layout.views(); ++v) {
    count += layout.units_per_superblock(ViewId{v}) > 0 ? 1 : 0;
  }
  return count;
}

/// Adds up all lanes on one device. A second one has no copies of snapshots.
std::size_t workspace_bytes(const models::Plan& plan, const models::Geometry& geometry,
                            const Budget& budget, models::RunnerOptions runner, int threads) {
  const auto bytes = [&](int of_lane) {
    return models::ModelRunner::workspace_bytes(budget.device, plan, geometry, runner, of_lane);
  };
  const std::size_t first = bytes(threads);
  runner.side_copies = {};
  return first + (budget.prefill_threads > 0 ? bytes(budget.prefill_threads) : 0);
}

/// Adds up all lanes, and what is copied between cards that do not reach each other.
std::size_t pinned_bytes(const models::Plan& plan, const models::Geometry& geometry,
                         const Budget& budget, models::RunnerOptions runner) {
  const auto bytes = [&] {
    return models::ModelRunner::pinned_bytes(budget.device, plan, geometry, runner);
  };
  std::size_t all = bytes();
  runner.side_copies = {};
  if (budget.prefill_threads > 0 || budget.cards > 1) all += bytes();
  const bool is_staged = budget.cards > 1 && budget.mapping.peers.empty();
  return all + (is_staged ? 2 * kernels::card_copies_pinned_bytes : 0);
}

/// MemoryPlan's rule. Of `memory` all that the workspace depends on is set but the chunk.
void choose_chunk(MemoryPlan& memory, const models::Plan& plan, const models::Geometry& geometry,
                  const Budget& budget, int threads, const SessionShape& shape) {
  memory.chunk_tokens = shape.chunk_tokens > 0 ? shape.chunk_tokens : models::Roofline::chunk_min;
  if (shape.chunk_tokens > 0 || !budget.rates.is_known() ||
      geometry.load.activation != DType::bf16) {
    return;
  }
  const models::Roofline roofline(plan, geometry);
  const std::int64_t prompts = std::int64_t{memory.length_max} * shape.sequences_max;
  const std::size_t taken = memory.weights + memory.library;
  const std::size_t room = budget.bytes > taken ? (budget.bytes - taken) / 8 : 0;
  const std::int32_t wanted = roofline.chunk_tokens(budget.rates);
  const auto fits = [&] {
    return workspace_bytes(plan, geometry, budget, runner_options(plan, memory, shape), threads) <=
           room;
  };
  while (memory.chunk_tokens < wanted && memory.chunk_tokens < prompts) {
    memory.chunk_tokens *= 2;
    if (fits()) continue;
    memory.chunk_tokens /= 2;
    break;
  }
  if (shape.prefers_throughput) return;
  memory.mixed_tokens = std::min(
      memory.chunk_tokens, roofline.chunk_tokens_within(budget.rates, MemoryPlan::mixed_seconds));
}

/// All that is known without the pools' size, with the tables of the longest sequence; how long
/// that is pools of a size have still to say.
MemoryPlan plan_without_pools(const models::Plan& plan, const models::Geometry& geometry,
                              const Budget& budget, std::int32_t context, int threads,
                              const SessionShape& shape) {
  MemoryPlan memory;
  memory.budget = budget.bytes;
  memory.mapping = budget.mapping;
  memory.length_max = wanted_length(plan, context);
  memory.weights =
      budget.weights > 0 ? budget.weights : weight_bytes(plan, budget.device, geometry.load);
  memory.library = budget.library;
  memory.memories = budget.memories;
  memory.cards = budget.cards;
  if (shape.host_tier_bytes > 0) {
    const HostTierParts parts = host_tier_parts(shape.host_tier_bytes, geometry);
    memory.side_copies = {.out = parts.copies, .back = parts.reads};
  }
  const bool is_flat = budget.mapping.mode == kernels::MapMode::flat;
  memory.pools.layout.groups.resize(models::page_groups(geometry, is_flat));
  choose_chunk(memory, plan, geometry, budget, threads, shape);
  return memory;
}

}  // namespace

std::int32_t chunk_tokens_of(const models::Plan& plan, const models::Geometry& geometry,
                             const Budget& budget, int threads) {
  return plan_without_pools(plan, geometry, budget, 0, threads, {}).chunk_tokens;
}

MemoryPlan plan_memory(const models::Plan& plan, const models::Geometry& geometry,
                       const Budget& budget, std::int32_t context, int threads,
                       const SessionShape& shape) {
  MemoryPlan memory = plan_without_pools(plan, geometry, budget, context, threads, shape);
  const auto set_workspace = [&] {
    const models::RunnerOptions runner = runner_options(plan, memory, shape);
    memory.workspace = workspace_bytes(plan, geometry, budget, runner, threads);
    memory.pinned = pinned_bytes(plan, geometry, budget, runner);
  };
  if (shape.drafts_room > 0 &&
      geometry.slot_bytes > 0) {  // before pools are cut: they will have rings
    memory.pools.layout.rings.per_superblock = 1;
    memory.pools.layout.ring_tokens = shape.drafts_room;
  }
  set_workspace();
  const std::size_t fixed = memory.weights + memory.workspace + memory.library;
  const auto memories = static_cast<std::size_t>(budget.memories);
  const std::size_t least = memories * (geometry.page_bytes + geometry.slot_bytes);
  if (fixed + least > budget.bytes) {
    const std::size_t saved = lossless_saves(plan, budget.device, geometry.load);
    fail_too_small(memory, fixed + least, geometry.load, budget.device,
                   saved > 0 && fixed + least - saved <= budget.bytes);
  }
  if (least > budget.pool_bytes) fail_pools_too_small(budget, least);

  const std::size_t left = budget.bytes - fixed;
  memory.process = std::min(budget.process, (left - least) / 2);

  models::MemoryLayoutOptions options;
  options.pool_bytes = std::min(left - memory.process, budget.pool_bytes) / memories;
  options.packed = budget.packed_snapshots;
  options.ring_tokens = shape.drafts_room;
  options.handle_bytes_min = kernels::handle_bytes_min(budget.device);
  options.driver_calls_max = budget.driver_calls_max;
  if (budget.mapping.mode == kernels::MapMode::flat) {
    options.flat = {.sequences = shape.sequences_max, .tokens = memory.length_max};
  }
  memory.pools = models::memory_layout_of(geometry, options);
  const MemoryLayout& layout = memory.pools.layout;
  const std::size_t views = views_in_use(layout) * memories;
  const std::size_t addresses = budget.addresses - std::min(budget.addresses, fixed);
  if (layout.bytes() * views > addresses && least * views <= addresses) {
    options.pool_bytes = addresses / views;
    memory.pools = models::memory_layout_of(geometry, options);
  }
  memory.length_max = length_max(layout, memory.length_max, memory.chunk_tokens);
  set_workspace();
  memory.sequences = std::max(1, sequences_at_once(layout, memory.length_max, shape.sequences_max));
  return memory;
}

std::string chunk_text(const MemoryPlan& memory) {
  std::string text = counted(memory.chunk_tokens, "token");
  if (memory.mixed_tokens > 0 && memory.mixed_tokens < memory.chunk_tokens) {
    text += fmt::format(", {} where answers go on", memory.mixed_tokens);
  }
  return text;
}

}  // namespace hyb::app
