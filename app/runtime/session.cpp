#include "app/runtime/session.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "app/machine/device.h"
#include "app/options/options.h"
#include "app/request/generation_config.h"
#include "app/request/template_probe.h"
#include "app/runtime/draft_model.h"
#include "app/runtime/trace_file.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/storage.h"
#include "core/memory/pool/layout.h"
#include "core/memory/tier/snapshot_tier.h"
#include "kernels/arena/superblocks.h"
#include "kernels/card.h"
#include "kernels/card_copies.h"

namespace hyb::app {

std::string chunk_text(const MemoryPlan& memory) {
  std::string text = counted(memory.chunk_tokens, "token");
  if (memory.mixed_tokens > 0 && memory.mixed_tokens < memory.chunk_tokens) {
    text += fmt::format(", {} where answers go on", memory.mixed_tokens);
  }
  return text;
}

Session::Session(const RunSettings& resolved, const SessionShape& wanted,
                 const std::function<void(const ModelSource&)>& check)
    : shape_(wanted),
      settings_(resolved),
      outline_(outline_of(
          resolved, {.sequences = wanted.sequences_max, .answer_tokens = wanted.answer_tokens})) {
  const ModelSource& source = settings_.source;
  shape_.drafts_room = settings_.drafts.drafts_room;
  shape_.tree = settings_.drafts.tree;
  check_loadable(source, settings_);
  check_lanes(settings_, outline_.head.has_value());
  if (outline_.head) check_loadable(*outline_.head, settings_);
  if (check) check(source);
  // Tokenizer and template are read while the weights are packed.
  auto reading = std::async(std::launch::async, [&] { return read_texts(source); });
  load();
  texts_ = reading.get();
  make_runner();
  set_disaggregated(settings_.lanes.has_value());
  if (settings_.drafts.source == DraftSource::draft && !outline_.head) {
    draft_model_ = std::make_unique<DraftModel>(settings_, budget_.draft_model, shape_);
    draft_model_->check_vocabulary(texts_.tokenizer ? &*texts_.tokenizer : nullptr, vocab_used());
  }
  start_engine(*runner_, speculation());
  load_time_ = std::chrono::steady_clock::now() - opened_;
  log::debug(fmt::format(
      "{} on {}: weights {}, workspace {}, pools {}, {} of up to {} tokens, chunks of {}",
      source.name(), name_of(queue_->device()), bytes_text(memory_.weights),
      bytes_text(memory_.workspace), bytes_text(memory_.pool_bytes()),
      counted(memory_.sequences, "sequence"), memory_.length_max, chunk_text(memory_)));
}

namespace {

/// The kernel ends a process that takes more than its control group may.
void warn_over_limit(const std::string& memory, std::size_t bytes) {
  const std::string note = limit_note(memory_limits(), bytes);
  if (!note.empty()) log::warning(fmt::format("--memory {}: more than is free{}", memory, note));
}

}  // namespace

void Session::load() {
  const std::optional<TwoLanes>& lanes = settings_.lanes;
  budget_ = budget_of(settings_);
  if (budget_.device == kernels::Device::cpu) warn_over_limit(settings_.memory.text, budget_.bytes);
  // Before memory is mapped that it reaches.
  if (lanes && lanes->have_two_cards()) {
    prefill_card_ =
        std::make_unique<PrefillCard>(app::prefill_queue(*lanes, settings_.batch_invariant));
  }
  queue_ = std::make_unique<kernels::Queue>(make_queue(settings_));
  plan();  // whether it fits is known before a weight is read
  // Mapping gigabytes takes seconds. What weights in 12 bits leave for them is not known yet.
  if (queue_->device() == kernels::Device::cuda && !outline_.geometry.load.lossless) {
    superblocks_ = std::async(std::launch::async, [this] {
      return models::map_superblocks(kernels::Device::cuda, memory_.pools, memory_.mapping);
    });
  }
  model_ = load_weights_of(
      settings_, outline_, *queue_, [this] { return release_pools(); }, shape_.progress);
  if (outline_.geometry.load.lossless) {
    budget_.weights = model_.weights.bytes();  // some may take more than 12 bits
    plan();
  }
  if (!prefill_card_) return;
  prefill_card_->queue.make_current();
  prefill_card_->model = load_weights_of(settings_, outline_, prefill_card_->queue);
}

void Session::plan() {
  memory_ = plan_memory(outline_.plan, outline_.geometry, budget_, settings_.context,
                        queue_->threads(), shape_);
}

/// For a weight that does not fit: pools can be made again, and smaller.
bool Session::release_pools() {
  if (!may_shrink() || !superblocks_.valid()) return false;
  try {
    superblocks_.get();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
  }
  return true;
}

std::int32_t Session::vocab_used() const {
  return texts_.tokenizer ? std::min(texts_.tokenizer->size(), model_.plan.vocab)
                          : model_.plan.vocab;
}

/// Until prefill is measured. The speed is a guess; how long prompts compare to short ones is not.
PrefillCost Session::expected_cost() const {
  constexpr double flops_per_thread_second = 5e10;
  const int threads = is_disaggregated_ ? settings_.lanes->prefill.threads : queue_->threads();
  return prefill_seconds(roofline().prefill(), flops_per_thread_second * threads);
}

/// Whether what is reused is what would be run again, to the bit. Where it is not, answers must not
/// depend on a clock that decides what is remembered.
bool Session::is_exact() const {
  return settings_.reuse.snapshots == Precision::exact && queue_->batch_invariant();
}

SpeculationOptions Session::speculation() const {
  return {.is_on = shape_.drafts_room > 0,
          .draft_steps = settings_.drafts.draft_steps,
          .branches = shape_.tree.branches,
          .rows = shape_.tree.rows,
          .drafter = draft_model_.get(),
          .by_model = model_.plan.draft.has_value()};
}

/// A request whose prompt is known takes one state, a turn of a conversation two or three: its own
/// and snapshots. A card's memory is there once it is mapped.
std::int32_t Session::states_ahead() const {
  constexpr std::int32_t states_of_a_turn = 3;
  return shape_.expects_more && queue_->device() == kernels::Device::cpu ? states_of_a_turn : 0;
}

PrefixCacheOptions Session::prefix_options() const {
  PrefixCacheOptions options;
  options.enabled = settings_.reuse.prefixes && memory_.mapping.mode != kernels::MapMode::flat;
  options.precision = settings_.reuse.snapshots;
  options.eviction = settings_.reuse.eviction;
  options.pages_are_exact = queue_->batch_invariant();
  options.cost = expected_cost();
  if (texts_.tokenizer && texts_.chat_template) {
    options.placement = placement_prior(*texts_.chat_template, *texts_.tokenizer);
  }
  return options;
}

void Session::make_runner() {
  models::RunnerOptions options = runner_options(model_.plan, memory_, shape_);
  options.vocab_used = vocab_used();
  options.graphs = settings_.graphs;
  const std::size_t planned = memory_.pool_bytes();
  std::string obstacle;  // the first one: those after it differ in figures alone
  while (!runner_) {
    try {
      runner_ = std::make_unique<models::ModelRunner>(
          *queue_, model_.plan, model_.weights, model_.geometry, options,
          superblocks_.valid() ? superblocks_.get() : nullptr);
      if (settings_.lanes) make_prefill_lane(options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;
      prefill_lane_.reset();
      runner_.reset();  // only its prefill lane may have failed
      if (obstacle.empty()) obstacle = error.what();
      shrink_pools(error);
      options.memory = memory_.pools;
      options.positions_max = memory_.length_max;
    }
  }
  queue_->make_current();
  if (obstacle.empty()) return;
  log::warning(fmt::format("{}; the pools shrink from {} to {}", obstacle, bytes_text(planned),
                           bytes_text(memory_.pool_bytes())));
}

void Session::make_prefill_lane(const models::RunnerOptions& options) {
  const TwoLanes& lanes = *settings_.lanes;
  if (lanes.share_memory) {
    prefill_lane_ = make_sharing_lane(lanes, *runner_, model_, settings_.source.name());
  } else if (prefill_card_) {
    models::RunnerOptions there = options;
    there.mapping = mapping_of_prefill(lanes, options.mapping);
    prefill_lane_ = make_lane_on_card(prefill_card_->queue, prefill_card_->model, there, *runner_);
  } else {
    prefill_lane_ = make_lane_with_memory(lanes, model_, options, *runner_);
  }
}

/// The device has less memory than it reported, or another process has taken some since.
void Session::shrink_pools(const Error& reason) {
  const std::size_t before = memory_.pool_bytes();
  const auto holdings = [&] {
    return fmt::format("{}; of {} allowed the weights take {}, the workspace {}, the pools {}",
                       reason.what(), bytes_text(memory_.budget), bytes_text(memory_.weights),
                       bytes_text(memory_.workspace), bytes_text(before));
  };
  if (!may_shrink()) throw Error(ErrorKind::memory, holdings());
  budget_.pool_bytes = before - before / 8;
  if (queue_->device() == kernels::Device::cuda) {
    std::size_t free = kernels::card(queue_->card()).free_bytes;
    if (prefill_card_) {
      free = std::min(free, kernels::card(prefill_card_->queue.card()).free_bytes);
    }
    const std::size_t room = free > memory_.workspace ? free - memory_.workspace : 0;
    budget_.pool_bytes = std::min(budget_.pool_bytes, room);
  }
  try {
    plan();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    throw Error(ErrorKind::memory, holdings() + ", and smaller ones hold no sequence");
  }
}

/// Weights are packed by all threads; then each lane has its own.
void Session::set_disaggregated(bool disaggregated) {
  if (disaggregated == is_disaggregated_) return;
  require(settings_.lanes.has_value(), "session: it was opened with two lanes");
  const TwoLanes& lanes = *settings_.lanes;
  if (!disaggregated && !lanes.share_memory) {
    throw Error(ErrorKind::usage,
                "--prefill-device: one lane would have the memory of one side alone; both ways are "
                "compared where lanes share memory");
  }
  engine_.reset();
  is_disaggregated_ = disaggregated;
  if (lanes.device == kernels::Device::cuda) return;
  *queue_ = disaggregated ? decode_queue(lanes) : undivided_queue(lanes);
}

void Session::start_engine(Runner& on, const SpeculationOptions& drafting) {
  engine_.reset();
  engine_ = std::make_unique<Engine>(
      on, texts_.tokenizer ? &*texts_.tokenizer : nullptr,
      EngineOptions{.length_max = memory_.length_max,
                    .sequences_max = shape_.sequences_max,
                    .chunk_tokens = memory_.chunk_tokens,
                    .mixed_tokens = memory_.mixed_tokens,
                    .prefixes = prefix_options(),
                    .states_ahead = states_ahead(),
                    .measures_prefill = is_exact(),
                    .speculation = drafting,
                    .prefill_lane = is_disaggregated_ ? &prefill_lane_->runner() : nullptr,
                    .link = is_disaggregated_ ? prefill_lane_->link() : nullptr,
                    .state_share = settings_.reuse.state_share,
                    .audit = settings_.reuse.audit});
  const std::string& record = settings_.reuse.record;
  if (!record.empty() && !trace_) trace_ = std::make_unique<TraceFile>(record, source().name());
  if (trace_) engine_->record(&trace_->recorder());
}

Session::~Session() = default;

void Session::restart_engine(const ReuseOptions& reuse, Runner& runner,
                             const SpeculationOptions& speculation) {
  settings_.reuse = reuse;
  start_engine(runner, speculation);
}

Request request_of(const GenerationOptions& options, const ModelTexts& texts) {
  Request request;
  GenerationDefaults defaults = generation_defaults(texts.generation_config, options);
  request.max_tokens = options.max_tokens.value_or(defaults.max_tokens.value_or(-1));
  request.sampling = sampling_of(options, texts.generation_config);
  request.sampling.banned = texts.banned_tokens;
  request.stop = options.stop.empty() ? std::move(defaults.stop) : options.stop;
  request.stop_tokens = texts.stop_tokens;
  request.ignore_eos = options.ignore_eos;
  return request;
}

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
  return (weights.empty() ? "" : weights + ", ") + "a smaller --context the workspace";
}

[[noreturn]] void fail_too_small(const MemoryPlan& memory, std::size_t needed,
                                 const models::LoadOptions& load, kernels::Device device,
                                 bool fits_in_12_bits) {
  const bool is_card = device == kernels::Device::cuda;
  const std::string library =
      memory.library > 0 ? fmt::format("cuBLASLt {}, ", bytes_text(memory.library)) : "";
  throw Error(
      ErrorKind::memory,
      fmt::format("the model does not fit: it needs {} (weights {}, workspace {}, {}one short "
                  "sequence {}), --memory allows {}{}; {}",
                  bytes_text(needed), bytes_text(memory.weights), bytes_text(memory.workspace),
                  library, bytes_text(needed - memory.weights - memory.workspace - memory.library),
                  bytes_text(memory.budget), is_card ? "" : limit_note(memory_limits(), needed),
                  smaller_text(load, fits_in_12_bits)));
}

[[noreturn]] void fail_pools_too_small(const Budget& budget, std::size_t needed) {
  throw Error(ErrorKind::memory, fmt::format("--pool-memory allows {}, one short sequence needs {}",
                                             bytes_text(budget.pool_bytes), bytes_text(needed)));
}

/// What a card's driver may take to create pools and to map them.
constexpr double start_seconds_max = 1.0;

/// What a process has on the CPU besides weights, workspace and pools, as peaks of Pss show: code
/// and tables take 24 MiB.
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

/// How a host tier divides its bytes. The card sets aside as many as there are copies.
struct HostTierParts {
  std::size_t copies, reads, index, snapshots;
};

/// Throws Error(usage) where too little is left. `disk_bytes`: of a disk tier after it.
HostTierParts host_tier_parts(std::size_t bytes, const models::Geometry& geometry,
                              std::size_t disk_bytes = 0) {
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

/// Of all lanes on one device. A second one has no copies of snapshots.
std::size_t workspace_bytes(const models::Plan& plan, const models::Geometry& geometry,
                            const Budget& budget, models::RunnerOptions runner, int threads) {
  const auto bytes = [&](int of_lane) {
    return models::ModelRunner::workspace_bytes(budget.device, plan, geometry, runner, of_lane);
  };
  const std::size_t first = bytes(threads);
  runner.side_copies = {};
  return first + (budget.prefill_threads > 0 ? bytes(budget.prefill_threads) : 0);
}

/// Of all lanes, and of what is copied between cards that do not reach each other.
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
  memory.length_max = length_max(layout, memory.length_max, memory.chunk_tokens);
  set_workspace();
  memory.sequences = std::max(1, sequences_at_once(layout, memory.length_max, shape.sequences_max));
  return memory;
}

namespace {

/// $XDG_CACHE_HOME/hyb or ~/.cache/hyb.
std::filesystem::path cache_folder(const Environment& environment) {
  const HubEnvironment& known = environment.hub;
  if (known.xdg_cache_home && !known.xdg_cache_home->empty()) {
    return std::filesystem::path(*known.xdg_cache_home) / "hyb";
  }
  if (known.home && !known.home->empty()) {
    return std::filesystem::path(*known.home) / ".cache" / "hyb";
  }
  throw Error(ErrorKind::usage,
              "--disk-tier: there is no home for its file; say where with --disk-tier-folder");
}

/// Where a file of the disk tier is made; the folder is there then, unless it cannot be.
std::filesystem::path disk_tier_folder(const TierFlags& flags, const Environment& environment) {
  std::filesystem::path folder = flags.disk_tier_folder.empty()
                                     ? cache_folder(environment)
                                     : std::filesystem::path(flags.disk_tier_folder);
  std::error_code ignored;  // what is wrong with the folder the file says
  std::filesystem::create_directories(folder, ignored);
  return folder;
}

/// Has `add` make a tier on a disk. False, after a warning, where there is no room for its file.
template <typename Add>
bool try_disk(Add&& add) {
  try {
    add();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::runtime) throw;
    log::warning(std::string("disk tier: off: ") + error.what());
  }
  return false;
}

void add_host_tier(Session& session, const TierFlags& flags, const Environment& environment) {
  Engine& engine = session.engine();
  const std::size_t disk_bytes = flags.disk_tier.value_or(0);
  const HostTierParts parts =
      host_tier_parts(*flags.host_tier, session.model().geometry, disk_bytes);
  TierOptions options = {.budget_bytes = parts.snapshots,
                         .cost = engine.prefixes().options().cost,
                         .bytes_per_second = 1e10,
                         .index_bytes_max = parts.index,
                         .staging_bytes = 0,  // all goes through pinned memory
                         .may_wait = false,
                         .source = SnapshotSource::host};
  const auto add_both = [&] {
    TierOptions both = options;
    both.budget_bytes = disk_bytes;
    both.bytes_per_second = TierOptions{}.bytes_per_second;
    both.source = SnapshotSource::disk;
    engine.add_tier(
        "host and disk tier",
        std::make_unique<LayeredStorage>(parts.snapshots, disk_tier_folder(flags, environment)),
        both);
  };
  if (disk_bytes > 0 && try_disk(add_both)) return;
  engine.add_tier("host tier", std::make_unique<MemoryStorage>(parts.snapshots), options);
}

}  // namespace

void add_tier_options(CLI::App& cli, TierFlags& flags) {
  const auto add = [&](const char* name, std::optional<std::size_t>& bytes, const char* help) {
    cli.add_option_function<std::string>(
        name,
        [name, &bytes](const std::string& text) {
          const MemoryBudget size = parse_memory(text, name);
          if (size.kind != MemoryBudget::Kind::bytes) {
            throw Error(ErrorKind::usage,
                        fmt::format("{}: '{}' is not a size like 20GB or 8GiB", name, text));
          }
          bytes = size.bytes;
        },
        help);
  };
  add("--disk-tier", flags.disk_tier,
      "move snapshots that are evicted from memory to disk, up to this size: 20GB, 8GiB");
  cli.add_option(
         "--disk-tier-folder", flags.disk_tier_folder,
         "folder of the disk tier; its file has no name and ends with the process (default: "
         "the cache folder)")
      ->type_name("FILE");
  add("--host-tier", flags.host_tier,
      "the same in the machine's memory, for a card: copied while steps run; with --disk-tier what "
      "memory has no room for goes on to disk");
}

std::size_t check_tiers(const TierFlags& flags, const RunSettings& settings) {
  if (const auto& lanes = settings.lanes;
      lanes && !lanes->share_memory && (flags.host_tier || flags.disk_tier)) {
    throw Error(ErrorKind::usage,
                "--prefill-device: a tier extends one memory, and prompts have one of their own; "
                "leave one of them out");
  }
  if (flags.host_tier) {
    if (settings.device == kernels::Device::cpu) {
      throw Error(ErrorKind::usage,
                  "--host-tier: on the CPU the pools are in the host's memory already; give them "
                  "more with --memory, or use --disk-tier");
    }
    if (settings.reuse.snapshots == Precision::int8) {
      throw Error(ErrorKind::usage,
                  "--host-tier: with --snapshots int8 answers would depend on which snapshots were "
                  "copied in time; use --disk-tier, or exact snapshots");
    }
  }
  const std::size_t host_bytes = flags.host_tier.value_or(0);
  if (flags.disk_tier) {
    if (*flags.disk_tier <= host_bytes) {
      throw Error(ErrorKind::usage,
                  "--disk-tier: with --host-tier it has all that the host's memory has, and more: "
                  "give it the larger size");
    }
  } else if (!flags.disk_tier_folder.empty()) {
    throw Error(ErrorKind::usage, "--disk-tier-folder: there is no --disk-tier");
  }
  return host_bytes;
}

void add_tiers(Session& session, const TierFlags& flags, const Environment& environment) {
  if (flags.host_tier) return add_host_tier(session, flags, environment);
  if (!flags.disk_tier) return;
  Engine& engine = session.engine();
  try_disk([&] {
    engine.add_tier("disk tier",
                    std::make_unique<FileStorage>(disk_tier_folder(flags, environment)),
                    {.budget_bytes = *flags.disk_tier, .cost = engine.prefixes().options().cost});
  });
}

namespace {

/// How long a finished entry may have to wait: too short to notice.
constexpr std::chrono::milliseconds nap(20);

void give_back(Engine& engine, std::int32_t superblocks_max) {
  if (engine.pool().give_back(superblocks_max) > 0) engine.carry_out_orders();
}

}  // namespace

void add_idle_option(CLI::App& cli, std::optional<double>& seconds) {
  cli.add_option("--memory-idle", seconds,
                 "return memory to the machine that was not needed for this many seconds")
      ->check(CLI::Range(0.0, 1e9));
}

void check_idle(const std::optional<double>& seconds, const RunSettings& settings) {
  if (!seconds) return;
  if (settings.mapping.mode == kernels::MapMode::flat) {
    throw Error(ErrorKind::usage, "--memory-idle: --memory-mode flat gives no memory back");
  }
  if (settings.lanes && !settings.lanes->share_memory) {
    throw Error(ErrorKind::usage,
                "--memory-idle: memory of its own for prompts is not given back; leave one of them "
                "out");
  }
}

IdleMemory::IdleMemory(Engine& engine, const std::optional<double>& seconds, Clock::time_point now)
    : engine_(&engine), begin_(now), superblocks_(engine.usage().pool.superblocks_idle) {
  if (seconds) delay_ = std::chrono::duration<double>(*seconds);
}

void IdleMemory::poll(Clock::time_point now) {
  if (!delay_) return;
  superblocks_ = std::min(superblocks_, engine_->usage().pool.superblocks_idle);
  if (now - begin_ < *delay_) return;
  if (superblocks_ > 0) give_back(*engine_, superblocks_);
  begin_ = now;
  superblocks_ = engine_->usage().pool.superblocks_idle;
}

std::function<bool()> prepare_memory_when_idle(Engine& engine, std::function<bool()> ahead) {
  return [&engine, ahead = std::move(ahead)] {
    if (ahead && ahead()) return true;
    try {
      engine.prepare_memory();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;  // else the next request reports what it lacks
    }
    return false;
  };
}

std::function<bool()> release_memory_when_idle(Engine& engine, std::chrono::duration<double> delay,
                                               std::function<bool()> ahead) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  return [&engine, delay, begin, ahead = std::move(ahead)]() mutable {
    if (ahead && ahead()) return true;
    ahead = nullptr;
    if (Clock::now() - begin < delay) {
      std::this_thread::sleep_for(nap);
      return true;
    }
    give_back(engine, std::numeric_limits<std::int32_t>::max());
    return false;
  };
}

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
