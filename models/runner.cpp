#include "models/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "kernels/ops/draft_ring.h"
#include "kernels/transfer.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Cuts in the chunks of one step. A prompt has one before its last token, and some at branches and
/// messages; each costs a span's tables, and in a delta net memory for one more piece of a chunk.
constexpr std::int32_t cuts_max = 16;

/// One for each sequence, and the cuts of chunks; without recurrent state there are none. Branches
/// of drafts come on top.
std::int32_t step_spans(const Geometry& geometry, const RunnerOptions& options) {
  return options.sequences_max + (geometry.slot_bytes > 0 ? cuts_max : 0);
}

std::int32_t step_samples(const RunnerOptions& options) {
  return std::max(options.sequences_max, options.step_samples);
}

bool drafts_in_blocks(const Plan& plan) { return plan.draft && !plan.draft->runs_in_passes(); }
bool drafts_in_passes(const Plan& plan) { return plan.draft && plan.draft->runs_in_passes(); }

/// Spans of a step, branches included, or of blocks of drafts, each of whose tokens is one.
std::int32_t staged_spans(const Plan& plan, const Geometry& geometry,
                          const RunnerOptions& options) {
  const std::int32_t spans = step_spans(geometry, options) + options.step_branches;
  return drafts_in_blocks(plan) ? std::max(spans, step_samples(options)) : spans;
}

/// Whose pages have the hidden states that a draft layer reads; -1: none have. Before pools are cut
/// any.
std::int64_t hidden_group(const Geometry& geometry, const StoreLayout& memory) {
  if (!geometry.has_hidden_pages()) return -1;
  const std::size_t last = geometry.pages.size() - 1;
  const auto has_it = [&](const std::vector<std::size_t>& layers) {
    return std::ranges::find(layers, last) != layers.end();
  };
  return std::ranges::find_if(memory.layers, has_it) - memory.layers.begin();
}

StepStaging::Limits staging_limits(const Plan& plan, const Geometry& geometry,
                                   const RunnerOptions& options) {
  const MemoryLayout& layout = options.memory.layout;
  const bool has_rings = layout.rings.per_superblock > 0;
  return {.step_tokens = options.step_tokens,
          .spans = staged_spans(plan, geometry, options),
          .rows = step_samples(options),
          .pages = (options.positions_max + geometry.page_tokens - 1) / geometry.page_tokens + 1,
          .groups = static_cast<std::int64_t>(layout.groups.size()),
          .ring_spans = has_rings ? options.sequences_max + options.step_branches : 0,
          .ring_tokens = has_rings ? layout.ring_tokens : 0,
          .hidden_group = hidden_group(geometry, options.memory),
          .page_tokens = geometry.page_tokens,
          .has_blocks = drafts_in_blocks(plan),
          .draft_spans = drafts_in_passes(plan) ? options.sequences_max : 0};
}

StepGraphs::Limits graph_limits(const Plan& plan, const Geometry& geometry,
                                const RunnerOptions& options) {
  const StepStaging::Limits limits = staging_limits(plan, geometry, options);
  // A verify step has no spans that are pieces of chunks.
  const std::int64_t spans = options.sequences_max + options.step_branches;
  return {.rows = options.sequences_max,
          .step = {.tokens = limits.step_tokens, .spans = spans, .samples = limits.rows},
          .vocab_used = options.vocab_used};
}

Capacity capacity_of(const Geometry& geometry, const RunnerOptions& options) {
  return {.memory = options.memory.layout,
          .step_tokens = options.step_tokens,
          .sequences_max = options.sequences_max,
          .vocab = options.vocab_used,
          .step_spans = step_spans(geometry, options),
          .step_samples = step_samples(options),
          .step_branches = options.step_branches};
}

StepLimits limits_of(const Plan& plan, const Geometry& geometry, const RunnerOptions& options) {
  return {.step_tokens = options.step_tokens,
          .spans = step_spans(geometry, options) + options.step_branches,
          .rows = step_samples(options),
          .positions = options.positions_max,
          .ring_rows = staging_limits(plan, geometry, options).ring_rows(),
          .ordered_columns = geometry.load.blocks.ordered_columns};
}

kernels::StagedBytes staged_bytes(kernels::Device device, const Plan& plan,
                                  const Geometry& geometry, const RunnerOptions& options) {
  kernels::StagedBytes bytes =
      kernels::staged_bytes(device, StepStaging::bytes(staging_limits(plan, geometry, options)));
  const auto add = [&](const kernels::StagedBytes& more) {
    bytes.device += more.device;
    bytes.pinned += more.pinned;
  };
  add(kernels::device_sampler_bytes(device, step_samples(options)));
  add(kernels::side_copy_bytes(device, options.side_copies));
  add(DraftSteps::bytes(device, plan, options.sequences_max));
  return bytes;
}

/// Leaves out what is for orders, for runners that carry out nothing but a step's spans.
RunnerOptions without_orders(RunnerOptions options) {
  options.side_copies = {};
  return options;
}

/// Before anything of the runner is made.
kernels::Queue& current(kernels::Queue& queue) {
  queue.make_current();
  return queue;
}

}  // namespace

ModelRunner::ModelRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                         const Geometry& geometry, const RunnerOptions& options,
                         std::unique_ptr<kernels::SuperblockMap> superblocks)
    : ModelRunner(queue, plan, weights, geometry, options, std::move(superblocks), nullptr) {}

ModelRunner::ModelRunner(kernels::Queue& queue, const ModelRunner& first)
    : ModelRunner(queue, first.plan_, first.weights_, first.geometry_,
                  without_orders(first.options_), nullptr, &first.store_) {
  require(&queue != &first.queue_, "runner: two that share memory have queues of their own");
}

/// `shared`: the store of another runner, whose memory this one's is; null: it has its own.
ModelRunner::ModelRunner(kernels::Queue& queue, const Plan& plan, const Weights& weights,
                         const Geometry& geometry, const RunnerOptions& options,
                         std::unique_ptr<kernels::SuperblockMap> superblocks, const Store* shared)
    : queue_(current(queue)),
      plan_(plan),
      weights_(weights),
      geometry_(geometry),
      options_(options),
      rules_(capacity_of(geometry, options), options.positions_max, plan.vocab),
      store_(shared != nullptr
                 ? Store(queue, *shared)
                 : Store(queue, geometry, options.memory, options.mapping, std::move(superblocks))),
      decoder_(queue, plan, weights, store_, geometry, limits_of(plan, geometry, options)),
      staging_(queue, staging_limits(plan, geometry, options)),
      sampler_(
          queue,
          {.vocab = plan.vocab, .vocab_used = options.vocab_used, .rows = step_samples(options)}),
      recordings_(queue, options.graphs),
      graphs_(decoder_, staging_, recordings_, sampler_.on_card(),
              graph_limits(plan, geometry, options)),
      side_copies_(kernels::make_side_copies(queue, options.side_copies)) {
  require(options.memory.layout.ring_tokens <= kernels::discarded_tokens_max,
          "runner: a ring has room for 16 drafts at most");
  running_.reserve(2);
  if (!plan.draft) return;
  drafts_.emplace(
      queue, plan, decoder_, staging_, recordings_, sampler_,
      DraftSteps::Limits{.sequences = options.sequences_max,
                         .block_rows = std::min(options.step_tokens, step_samples(options)),
                         .vocab_used = options.vocab_used});
}

std::size_t ModelRunner::workspace_bytes() const {
  return decoder_.scratch_bytes() + sampler_.workspace_bytes() +
         staged_bytes(queue_.device(), plan_, geometry_, options_).device;
}

std::size_t ModelRunner::workspace_bytes(kernels::Device device, const Plan& plan,
                                         const Geometry& geometry, const RunnerOptions& options,
                                         int threads) {
  return Decoder::scratch_bytes(plan, device, geometry.load.activation,
                                limits_of(plan, geometry, options)) +
         kernels::sample_workspace_bytes(device, plan.vocab, threads) +
         staged_bytes(device, plan, geometry, options).device;
}

std::size_t ModelRunner::pinned_bytes(kernels::Device device, const Plan& plan,
                                      const Geometry& geometry, const RunnerOptions& options) {
  return staged_bytes(device, plan, geometry, options).pinned;
}

std::string ModelRunner::holdings() const {
  constexpr double mib = 1 << 20;
  return fmt::format(
      "hyb holds {:.1f} MiB of weights, {:.1f} MiB of pools (of {:.1f}), {:.1f} MiB of workspace",
      static_cast<double>(weights_.bytes()) / mib, static_cast<double>(store_.bytes_backed()) / mib,
      static_cast<double>(store_.bytes()) / mib, static_cast<double>(workspace_bytes()) / mib);
}

StepResult ModelRunner::run(const Step& step) {
  if (is_async()) {
    launch(step);
    return wait();
  }
  rules_.check(step);
  carry_out(step.orders);
  if (step.spans.empty()) return {};
  const Tensor logits = graphs_.run(step);
  StepResult result;
  result.draft_entry_seconds = decoder_.draft_entry_seconds();
  if (logits.empty()) return result;
  result.sampled = sampler_.draw(step, logits);
  if (step.keep_logits) result.logits = download(logits, result.sampled.size());
  return result;
}

void ModelRunner::carry_out(std::span<const Order> orders) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const auto* order = std::get_if<AdvanceSlot>(&orders[i]);
    if (order == nullptr) continue;
    store_.carry_out(orders.subspan(done, i - done));
    rules_.check(*order);
    decoder_.advance(staging_.stage(*order));
    done = i + 1;
  }
  store_.carry_out(orders.subspan(done));
}

void ModelRunner::stage(const Step& step, bool is_next) {
  rules_.check(step);
  graphs_.stage(step, sampler_.rows_of(step), is_next);
  keeps_next_logits_ = step.keep_logits;
}

void ModelRunner::launch(const Step& step) {
  queue_.make_current();
  require(running_.empty(),
          "runner: a step that was not prepared is launched when none is running");
  is_prepared_ = false;
  carry_out(step.orders);
  if (step.spans.empty()) {
    running_.push_back({.launched = {}, .keeps_logits = false});
  } else {
    stage(step, false);
    launch_staged();
  }
}

void ModelRunner::prepare(const Step& next) {
  queue_.make_current();
  require(running_.size() == 1 && is_decode(next) && next.orders.empty(),
          "runner: a decode step is prepared while the one that samples its tokens runs");
  stage(next, true);
  is_prepared_ = true;
}

void ModelRunner::launch_prepared() {
  queue_.make_current();
  require(running_.size() <= 1 && std::exchange(is_prepared_, false),
          "runner: a step was prepared");
  launch_staged();
}

/// The answers are downloaded as soon as they are there.
void ModelRunner::launch_staged() {
  const WorkResult launched = graphs_.launch();
  if (!launched.logits.empty()) sampler_.on_card()->ask(launched.tokens);
  running_.push_back({.launched = launched, .keeps_logits = keeps_next_logits_});
}

bool ModelRunner::is_done() {
  require(!running_.empty(), "runner: a step is running");
  return kernels::is_done(queue_);
}

StepResult ModelRunner::wait() {
  queue_.make_current();
  require(!running_.empty(), "runner: a step is running");
  const RunningStep step = running_.front();
  running_.erase(running_.begin());
  StepResult result;
  if (step.launched.logits.empty()) {
    kernels::wait(queue_);
    return result;
  }
  const std::span<const SampledToken> drawn = sampler_.on_card()->answers();
  result.sampled.assign(drawn.begin(), drawn.end());
  if (step.keeps_logits) result.logits = download(step.launched.logits, result.sampled.size());
  return result;
}

void ModelRunner::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
  queue_.make_current();
  require(running_.empty(), "runner: memory is read between steps");
  store_.read(view, unit, bytes);
}

void ModelRunner::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
  queue_.make_current();
  require(running_.empty(), "runner: memory is written between steps");
  store_.write(view, unit, bytes);
}

void ModelRunner::read_beside(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
  require(!is_async(), "runner: a card's memory is not read by the host");
  store_.read_beside(view, unit, bytes);
}

void ModelRunner::write_beside(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
  require(!is_async(), "runner: a card's memory is not written by the host");
  store_.write_beside(view, unit, bytes);
}

std::unique_ptr<PendingBytes> ModelRunner::start_read(ViewId view, std::int32_t unit) {
  queue_.make_current();
  require(running_.empty(), "runner: memory is read between steps");
  return side_copies_ ? store_.start_read(*side_copies_, view, unit) : nullptr;
}

namespace {

class UnitWrite final : public StagedWrite {
 public:
  UnitWrite(const Store& store, std::unique_ptr<kernels::SideWrite> copy)
      : store_(store), copy_(std::move(copy)) {}

  std::span<std::byte> room() override { return copy_->room(); }
  void start(ViewId view, std::int32_t unit) override { store_.start_write(*copy_, view, unit); }
  bool is_done() override { return copy_->is_done(); }
  void wait() override { copy_->wait(); }

 private:
  const Store& store_;
  std::unique_ptr<kernels::SideWrite> copy_;
};

}  // namespace

bool ModelRunner::can_stage_writes() const { return side_copies_ && options_.side_copies.back > 0; }

std::unique_ptr<StagedWrite> ModelRunner::stage_write(std::size_t bytes) {
  if (!can_stage_writes()) return nullptr;
  queue_.make_current();
  auto copy = side_copies_->stage_write(bytes);
  return copy ? std::make_unique<UnitWrite>(store_, std::move(copy)) : nullptr;
}

bool ModelRunner::commit(SuperblockId superblock, bool may_create) {
  queue_.make_current();
  return store_.commit(superblock, may_create);
}

/// Fetches the first rows; waits for them.
std::vector<float> ModelRunner::download(const Tensor& logits, std::size_t rows) {
  std::vector<float> out(rows * static_cast<std::size_t>(logits.dim(1)));
  kernels::download(queue_, std::as_writable_bytes(std::span(out)), logits.as<std::byte>());
  return out;
}

std::vector<std::vector<SampledToken>> ModelRunner::draft(const Step& step) {
  queue_.make_current();
  require(can_draft() && running_.empty(), "runner: what drafts does it between steps");
  rules_.check_drafting(step);
  is_prepared_ = false;
  carry_out(step.orders);
  return drafts_->draft(step);
}

}  // namespace hyb::models
