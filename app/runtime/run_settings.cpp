#include "app/runtime/run_settings.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "app/machine/device.h"
#include "core/base/error.h"
#include "core/engine/runner.h"
#include "kernels/card.h"

namespace hyb::app {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorKind::usage, text); }

bool takes_model(DraftSource source) {
  switch (source) {
    case DraftSource::eagle3:
    case DraftSource::dflash:
    case DraftSource::draft:
      return true;
    case DraftSource::automatic:
    case DraftSource::off:
    case DraftSource::ngram:
    case DraftSource::mtp:
      break;
  }
  return false;
}

/// --spec, where a draft model is what auto takes: draft, also where that is a head.
DraftSource source_of(const SpeculationFlags& flags) {
  const std::string_view word = word_of(words::spec, flags.source);
  const bool needs_model = takes_model(flags.source);
  if (needs_model && flags.draft_model.empty()) {
    refuse(fmt::format("--spec {}: say which model with --draft-model", word));
  }
  if (flags.draft_model.empty() || needs_model) return flags.source;
  if (flags.source == DraftSource::automatic) return DraftSource::draft;
  refuse(fmt::format("--draft-model: with --spec {} it has nothing to do; leave one of them out",
                     word));
}

TreeLimits tree_of(const SpeculationFlags& flags) {
  if (flags.branches == 1) {
    if (flags.rows > 0) {
      refuse("--draft-tokens: bounds a tree; say how wide with --draft-branches");
    }
    return {};
  }
  if (flags.draft_steps == 0) {
    refuse("--draft-branches: say how deep the tree is with --draft-steps, from 1 to 7");
  }
  const std::int32_t alone = 1 + flags.draft_steps;
  if (flags.rows > 0 && flags.rows < alone) {
    refuse(
        fmt::format("--draft-tokens {}: --draft-steps {} alone takes {}, with the token before "
                    "the guesses",
                    flags.rows, flags.draft_steps, alone));
  }
  return {.branches = flags.branches, .rows = flags.rows > 0 ? flags.rows : 2 * alone};
}

/// `are_exact`: drafts leave the bits of a token as they are, which the fast routes of a card do
/// not.
Drafts drafts_of(const SpeculationFlags& flags, bool are_exact) {
  Drafts drafts = {.source = source_of(flags),
                   .model = flags.draft_model,
                   .is_named = flags.source != DraftSource::automatic,
                   .draft_steps = flags.draft_steps,
                   .tree = tree_of(flags)};
  const bool is_auto = drafts.source == DraftSource::automatic;
  if (!are_exact && is_auto) drafts.source = DraftSource::off;
  if (drafts.source == DraftSource::off) return drafts;
  if (!are_exact) {
    refuse(
        fmt::format("--spec {}: on a card, answers are the same with drafts only with "
                    "--batch-invariant; add it, or leave --spec out",
                    word_of(words::spec, drafts.source)));
  }
  drafts.may_load_layer = is_auto && flags.is_heeded;
  drafts.drafts_room = drafts_max;
  return drafts;
}

models::GraphOptions graphs_of(const ModelOptions& options, kernels::Device device) {
  if (options.graphs && device == kernels::Device::cpu) {
    refuse("--graphs: needs a card (--device cuda)");
  }
  return options.graphs.value_or(models::GraphOptions{});
}

std::vector<int> cards_of(kernels::Device device, const std::optional<TwoLanes>& lanes) {
  if (device == kernels::Device::cpu) return {};
  if (!lanes) return {0};
  if (!lanes->have_two_cards()) return {lanes->decode.card};
  return {lanes->decode.card, lanes->prefill.card};
}

/// The bytes that a budget has of this machine's memory, or of its card's.
std::size_t budget_bytes(const MemoryBudget& budget, const std::vector<int>& cards) {
  const bool is_card = !cards.empty();
  const auto of_cards = [&](std::size_t kernels::Card::*bytes) {
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (const int card : cards) least = std::min(least, kernels::card(card).*bytes);
    return least;
  };
  switch (budget.kind) {
    case MemoryBudget::Kind::bytes:
      return budget.bytes;
    case MemoryBudget::Kind::share:
      return static_cast<std::size_t>(
          budget.share *
          static_cast<double>(is_card ? of_cards(&kernels::Card::memory_bytes) : machine_bytes()));
    case MemoryBudget::Kind::automatic:
      break;
  }
  return without_room(is_card ? of_cards(&kernels::Card::free_bytes) : available_bytes());
}

kernels::SuperblockMapOptions mapping_with_lanes(const PoolOptions& pools, kernels::Device device,
                                                 const std::optional<TwoLanes>& lanes) {
  kernels::SuperblockMapOptions mapping = mapping_of(pools, device);
  if (!lanes) return mapping;
  mapping = mapping_of_decode(*lanes, std::move(mapping));
  mapping.is_shared = device == kernels::Device::cpu && lanes->share_memory;
  return mapping;
}

}  // namespace

bool Drafts::has_model() const { return takes_model(source); }

void RunSettings::set_memory(std::size_t bytes) {
  memory = {.kind = MemoryBudget::Kind::bytes, .bytes = bytes, .text = std::to_string(bytes)};
}

void RunSettings::measure_memory() { memory.bytes = budget_bytes(memory, cards); }

kernels::SuperblockMapOptions mapping_of(const PoolOptions& options, kernels::Device device) {
  const bool auto_is_remap = device == kernels::Device::cpu && !options.strict_vmm;
  kernels::SuperblockMapOptions mapping;
  mapping.mode =
      options.mode.value_or(auto_is_remap ? kernels::MapMode::remap : kernels::MapMode::flip);
  mapping.strict = options.strict_vmm;
  if (mapping.strict && mapping.mode != kernels::MapMode::flip) {
    refuse(fmt::format("--strict-vmm: is of use with --memory-mode flip only, not {}",
                       word_of(words::memory_mode, options.mode)));
  }
  return mapping;
}

RunSettings resolve(const ModelOptions& options, const Environment& environment) {
  RunSettings settings = {
      .source = ModelSource::find(options.model, environment, options.chat_template),
      .device = device_of(options.device),
      .batch_invariant = options.batch_invariant,
      .context = options.context,
      .memory = options.memory,
      .types = options.types,
      .reuse = options.reuse};
  const kernels::Device device = settings.device;
  settings.graphs = graphs_of(options, device);
  settings.lanes = lanes_of(options, device);
  settings.cards = cards_of(device, settings.lanes);
  settings.threads = settings.lanes ? settings.lanes->threads() : options.threads;
  settings.drafts =
      drafts_of(options.speculation, options.batch_invariant || device == kernels::Device::cpu);
  settings.measure_memory();
  if (options.pool_memory && options.pool_memory->kind != MemoryBudget::Kind::automatic) {
    settings.pool_memory = budget_bytes(*options.pool_memory, settings.cards);
  }
  settings.mapping = mapping_with_lanes(options.pools, device, settings.lanes);
  if (options.reuse.snapshots == Precision::int8 &&
      settings.mapping.mode == kernels::MapMode::flat) {
    refuse("--snapshots int8: --memory-mode flat keeps no snapshots; use flip or remap");
  }
  return settings;
}

void check_lanes(const RunSettings& settings, bool has_head) {
  if (!settings.lanes || has_head || settings.drafts.source != DraftSource::draft) return;
  refuse(
      "--disaggregate: a draft model does not run beside two lanes; use --spec ngram or mtp, or "
      "leave one of them out");
}

RunSettings draft_settings(const RunSettings& settings, std::size_t bytes) {
  RunSettings own = settings;
  own.source = settings.source.other(settings.drafts.model);
  own.context = 0;
  own.set_memory(bytes);
  own.pool_memory.reset();
  own.mapping = mapping_with_lanes({}, settings.device, settings.lanes);
  own.reuse = {.audit = settings.reuse.audit};
  own.drafts = {};
  return own;
}

kernels::Queue make_queue(const RunSettings& settings) {
  const std::optional<TwoLanes>& lanes = settings.lanes;
  return kernels::Queue(settings.device, {.threads = settings.threads,
                                          .batch_invariant = settings.batch_invariant,
                                          .card = lanes ? lanes->decode.card : 0,
                                          .is_urgent = lanes && lanes->share_memory});
}

}  // namespace hyb::app
