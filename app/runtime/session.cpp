#include "app/runtime/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/machine/device.h"
#include "app/options/options.h"
#include "app/request/model_texts.h"
#include "app/request/template_probe.h"
#include "app/runtime/draft_model.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/trace_file.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "kernels/arena/superblocks.h"
#include "kernels/card.h"

namespace hyb::app {

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

/// True if reused state equals recomputed state to the bit. Where it does not, answers must not
/// depend on a clock that decides what is remembered.
bool Session::is_exact() const {
  return settings_.reuse.snapshots == Precision::exact && queue_->batch_invariant();
}

SpeculationOptions Session::speculation() const {
  return {.is_on = shape_.drafts_room > 0,
          .draft_steps = settings_.drafts.draft_steps,
          .tree = shape_.tree,
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

}  // namespace hyb::app
