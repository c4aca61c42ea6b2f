#include "models/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
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
  // Of a verify step, whose spans are no pieces of chunks.
  const std::int64_t spans = options.sequences_max + options.step_branches;
  return {.rows = options.sequences_max,
          .step = {.tokens = limits.step_tokens, .spans = spans, .samples = limits.rows},
          .vocab_used = options.vocab_used};
}

StepLimits limits_of(const Plan& plan, const Geometry& geometry, const RunnerOptions& options) {
  return {.step_tokens = options.step_tokens,
          .spans = step_spans(geometry, options) + options.step_branches,
          .rows = step_samples(options),
          .positions = options.positions_max,
          .ring_rows = staging_limits(plan, geometry, options).ring_rows()};
}

/// On a card the passes of drafts are made in one go.
bool has_draft_graphs(kernels::Device device, const Plan& plan) {
  return device == kernels::Device::cuda && drafts_in_passes(plan);
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
  if (has_draft_graphs(device, plan)) add(DraftGraphs::bytes(device, options.sequences_max));
  return bytes;
}

std::int32_t count_of(const auto& values) { return static_cast<std::int32_t>(values.size()); }

std::unique_ptr<kernels::DeviceSampler> sampler_for(kernels::Queue& queue, std::int64_t rows) {
  if (queue.device() == kernels::Device::cpu) return nullptr;
  return kernels::make_device_sampler(queue, rows);
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
      store_(shared != nullptr
                 ? Store(queue, *shared)
                 : Store(queue, geometry, options.memory, options.mapping, std::move(superblocks))),
      decoder_(queue, plan, weights, store_, geometry, limits_of(plan, geometry, options)),
      staging_(queue, staging_limits(plan, geometry, options)),
      sampler_(sampler_for(queue, step_samples(options))),
      recordings_(queue, options.graphs),
      graphs_(decoder_, staging_, recordings_, sampler_.get(),
              graph_limits(plan, geometry, options)),
      side_copies_(kernels::make_side_copies(queue, options.side_copies)),
      sample_workspace_(queue.device(), kernels::sample_workspace_bytes(queue.device(), plan.vocab,
                                                                        queue.threads())) {
  require(options.memory.layout.ring_tokens <= kernels::discarded_tokens_max,
          "runner: a ring has room for 16 drafts at most");
  const auto rows = static_cast<std::size_t>(step_samples(options));
  sample_params_.reserve(rows);
  running_.reserve(2);
  if (!has_draft_graphs(queue.device(), plan)) return;
  draft_graphs_ = std::make_unique<DraftGraphs>(queue, decoder_, staging_, recordings_,
                                                options.sequences_max, options.vocab_used);
}

Capacity ModelRunner::capacity() const {
  return {.memory = options_.memory.layout,
          .step_tokens = options_.step_tokens,
          .sequences_max = options_.sequences_max,
          .vocab = options_.vocab_used,
          .step_spans = step_spans(geometry_, options_),
          .step_samples = step_samples(options_),
          .step_branches = options_.step_branches};
}

std::size_t ModelRunner::workspace_bytes() const {
  return decoder_.scratch_bytes() + sample_workspace_.bytes() +
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

void ModelRunner::check(const Span& span) const {
  const MemoryLayout& memory = options_.memory.layout;
  require(!span.tokens.empty(), "runner: a span has at least one token");
  const std::int64_t end = std::int64_t{span.position} + count_of(span.tokens);
  require(end <= options_.positions_max, "runner: a sequence is longer than was planned for");
  require(span.tables.size() == memory.groups.size(), "runner: a page table per group");
  for (std::size_t group = 0; group < memory.groups.size(); ++group) {
    const PageTable& table = span.tables[group];
    require(end <= std::int64_t{count_of(table)} * geometry_.page_tokens,
            "runner: a span's page table has room for its tokens");
    const std::int32_t pages = memory.superblocks * memory.groups[group].pages_per_superblock;
    for (std::int32_t i = 0; i < count_of(table); ++i) {
      const PageId page = table[static_cast<std::size_t>(i)];
      const PositionRange positions = {i * geometry_.page_tokens, (i + 1) * geometry_.page_tokens};
      const bool may_lack = page == no_page && positions.last <= span.position &&
                            !memory.groups[group].kind->needs(positions, span.position);
      require(may_lack || (index(page) >= 0 && index(page) < pages),
              "runner: a page that exists, where one is read");
    }
  }
  if (geometry_.slot_bytes == 0) return;
  const std::int32_t slots = memory.superblocks * memory.slots.per_superblock;
  const bool is_branch = span.drafts > 0 && span.branch_ring != no_ring;
  require((index(span.write_slot) >= 0) != is_branch && index(span.write_slot) < slots &&
              index(span.read_slot) < slots,
          "runner: a span names slots that exist, and writes one where it is no branch");
  check_ring(span);
}

void ModelRunner::check_ring(const Span& span) const {
  const MemoryLayout& memory = options_.memory.layout;
  const std::int32_t tokens = count_of(span.tokens);
  require(span.drafts >= 0 && span.drafts < tokens && span.ring_entries >= 0,
          "runner: drafts come after a token");
  if (span.ring == no_ring) {
    require(span.drafts == 0 && span.ring_entries == 0, "runner: drafts are kept in a ring");
    return;
  }
  const std::int32_t rings = memory.superblocks * memory.rings.per_superblock;
  require(index(span.ring) >= 0 && index(span.ring) < rings &&
              index(ring_of_drafts(span)) < rings && span.ring_entries <= memory.ring_tokens &&
              span.drafts <= memory.ring_tokens,
          "runner: a ring that exists, with room for its entries");
  require(!uses_ring(span) || tokens <= 1 + memory.ring_tokens,
          "runner: few tokens come after a ring's entries");
}

void ModelRunner::check(const Step& step) const {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  for (const Span& span : step.spans) {
    tokens += count_of(span.tokens);
    rows += count_of(span.samples);
    check(span);
    for (const TokenId token : span.tokens) {
      require(index(token) >= 0 && index(token) < plan_.vocab, "runner: a token of the vocabulary");
    }
  }
  const auto with_ring = std::ranges::count_if(step.spans, uses_ring);
  require(tokens <= options_.step_tokens && rows <= step_samples(options_) &&
              with_ring <= options_.sequences_max + options_.step_branches &&
              count_of(step.spans) <= step_spans(geometry_, options_) + options_.step_branches,
          "runner: a step within capacity()");
  if (geometry_.slot_bytes > 0) check_chains(step);
}

StepResult ModelRunner::run(const Step& step) {
  if (is_async()) {
    launch(step);
    return wait();
  }
  check(step);
  carry_out(step.orders);
  if (step.spans.empty()) return {};
  const Tensor logits = graphs_.run(step);
  StepResult result;
  result.draft_entry_seconds = decoder_.draft_entry_seconds();
  if (logits.empty()) return result;
  add_rows(step);
  result.sampled = draw_rows(logits);
  if (step.keep_logits) result.logits = download(logits, result.sampled.size());
  return result;
}

void ModelRunner::carry_out(std::span<const Order> orders) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const auto* order = std::get_if<AdvanceSlot>(&orders[i]);
    if (order == nullptr) continue;
    store_.carry_out(orders.subspan(done, i - done));
    advance(*order);
    done = i + 1;
  }
  store_.carry_out(orders.subspan(done));
}

void ModelRunner::advance(const AdvanceSlot& order) {
  const MemoryLayout& memory = options_.memory.layout;
  const std::int32_t slots = memory.superblocks * memory.slots.per_superblock;
  require(index(order.from) < slots && index(order.to) >= 0 && index(order.to) < slots &&
              index(order.ring) >= 0 &&
              index(order.ring) < memory.superblocks * memory.rings.per_superblock &&
              order.entries > 0 && order.entries <= memory.ring_tokens,
          "runner: an order names slots and a ring that exist");
  decoder_.advance(staging_.stage(order));
}

void ModelRunner::stage(const Step& step, bool is_next) {
  check(step);
  add_rows(step);
  graphs_.stage(step, sample_params_, is_next);
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
  if (!launched.logits.empty()) sampler_->ask(launched.tokens);
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
  const std::span<const SampledToken> drawn = sampler_->answers();
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

void ModelRunner::add_rows(const Step& step) {
  sample_params_.clear();
  for (const Span& span : step.spans) {
    sample_params_.insert(sample_params_.end(), span.samples.begin(), span.samples.end());
  }
}

/// One per row that was added.
std::vector<SampledToken> ModelRunner::draw_rows(const Tensor& logits) {
  std::vector<SampledToken> tokens(sample_params_.size());
  const auto workspace = static_cast<std::int64_t>(sample_workspace_.bytes());
  kernels::sample(queue_, {.logits = logits,
                           .vocab_used = options_.vocab_used,
                           .rows = sample_params_,
                           .out = tokens,
                           .workspace = sample_workspace_.tensor(0, DType::u8, {workspace})});
  return tokens;
}

/// Fetches the first rows; waits for them.
std::vector<float> ModelRunner::download(const Tensor& logits, std::size_t rows) {
  std::vector<float> out(rows * static_cast<std::size_t>(logits.dim(1)));
  kernels::download(queue_, std::as_writable_bytes(std::span(out)), logits.as<std::byte>());
  return out;
}

/// Draws as draw_rows does, on either device.
std::vector<SampledToken> ModelRunner::draw_now(const Tensor& logits) {
  if (sampler_ == nullptr) return draw_rows(logits);
  sampler_->stage(sample_params_, logits.dim(0), options_.vocab_used);
  sampler_->draw(logits, options_.vocab_used, {});
  sampler_->ask({});
  const std::span<const SampledToken> drawn = sampler_->answers();
  return {drawn.begin(), drawn.end()};
}

void ModelRunner::check_draft(const Step& step) const {
  require(can_draft() && running_.empty(), "runner: what drafts does it between steps");
  require(count_of(step.spans) <= options_.sequences_max, "runner: drafts within capacity()");
  for (const Span& span : step.spans) {
    require(span.tokens.size() == 1 && span.samples.size() == 1 && span.drafts > 0 &&
                span.position > 0 && span.write_slot == no_slot &&
                (geometry_.slot_bytes == 0 || index(span.read_slot) >= 0),
            "runner: what is drafted for has run, but for one token");
    Span reach = span;  // as a step would run it, but for the slot that is written
    std::vector<TokenId> tokens(static_cast<std::size_t>(span.drafts), span.tokens.front());
    reach.tokens = tokens;
    reach.drafts = 0;
    reach.write_slot = span.read_slot;
    check(reach);
  }
}

namespace {

/// The token that has not run and masks after it, each in a span of its own; masks are sampled.
void add_block(const Span& span, std::span<const TokenId> mask, Step& blocks) {
  for (std::int32_t i = 0; i <= span.drafts; ++i) {
    Span& token = blocks.spans.emplace_back(Span{.tokens = i == 0 ? span.tokens : mask,
                                                 .position = span.position + i,
                                                 .tables = span.tables,
                                                 .read_slot = no_slot,
                                                 .write_slot = no_slot});
    if (i == 0) continue;
    token.samples = span.samples;
    token.samples.front() = token.samples.front().later(static_cast<std::uint64_t>(i - 1));
  }
}

}  // namespace

/// All drafts of a sequence at once, of as many sequences as a step has rows for.
std::vector<std::vector<SampledToken>> ModelRunner::draft_blocks(const Step& step) {
  const std::array mask = {TokenId{plan_.draft->block_mask().value()}};
  const std::int32_t most = std::min(options_.step_tokens, step_samples(options_));
  std::vector<std::vector<SampledToken>> drafts(step.spans.size());
  for (std::size_t first = 0, end = 0; first < step.spans.size(); first = end) {
    Step blocks;
    while (end < step.spans.size() && count_of(blocks.spans) + 1 + step.spans[end].drafts <= most) {
      add_block(step.spans[end++], mask, blocks);
    }
    require(end > first, "runner: a step has room for a block of drafts");
    const StepStaging::Staged staged = staging_.stage_blocks(blocks);
    add_rows(blocks);
    const std::vector<SampledToken> drawn =
        draw_now(decoder_.draft(staged.tables, staged.sample_rows, false));
    std::size_t row = 0;
    for (std::size_t i = first; i < end; ++i) {
      for (std::int32_t made = 0; made < step.spans[i].drafts; ++made, ++row) {
        if (drawn[row].finite && count_of(drafts[i]) == made) drafts[i].push_back(drawn[row]);
      }
    }
  }
  return drafts;
}

std::vector<std::vector<SampledToken>> ModelRunner::draft(const Step& step) {
  queue_.make_current();
  check_draft(step);
  is_prepared_ = false;
  carry_out(step.orders);
  if (drafts_in_blocks(plan_)) return draft_blocks(step);
  // Those with the most drafts come first, so that each pass has the first ones.
  std::vector<std::size_t> order(step.spans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return step.spans[i].drafts; });
  Step passes;
  std::vector<std::int32_t> counts;
  for (const std::size_t i : order) {
    passes.spans.push_back(step.spans[i]);
    counts.push_back(std::exchange(passes.spans.back().drafts, 0));
  }
  const std::vector<std::vector<SampledToken>> drawn =
      draft_graphs_ ? draft_at_once(passes, counts) : draft_by_passes(passes, counts);
  std::vector<std::vector<SampledToken>> drafts(order.size());
  for (std::size_t pass = 0; pass < drawn.size(); ++pass) {
    for (std::size_t at = 0; at < drawn[pass].size(); ++at) {
      std::vector<SampledToken>& own = drafts[order[at]];
      if (drawn[pass][at].finite && own.size() == pass) own.push_back(drawn[pass][at]);
    }
  }
  return drafts;
}

/// The sequences of pass `pass`, of falling numbers of drafts.
std::size_t ModelRunner::drafting(std::span<const std::int32_t> drafts, std::int32_t pass) {
  const auto is_over = [&](std::int32_t own) { return own <= pass; };
  return static_cast<std::size_t>(std::ranges::find_if(drafts, is_over) - drafts.begin());
}

/// Returns what each pass drew. `drafts` fall.
std::vector<std::vector<SampledToken>> ModelRunner::draft_at_once(
    const Step& step, std::span<const std::int32_t> drafts) {
  draft_graphs_->stage(step, drafts);
  for (std::int32_t pass = 0; pass < drafts.front(); ++pass) {
    sample_params_.clear();
    for (const Span& span : std::span(step.spans).first(drafting(drafts, pass))) {
      sample_params_.push_back(span.samples.front().later(static_cast<std::uint64_t>(pass)));
    }
    draft_graphs_->stage_draws(pass, sample_params_);
  }
  draft_graphs_->launch();
  std::vector<std::vector<SampledToken>> drawn(static_cast<std::size_t>(drafts.front()));
  for (std::int32_t pass = 0; pass < drafts.front(); ++pass) {
    const std::span<const SampledToken> tokens = draft_graphs_->drawn(pass);
    drawn[static_cast<std::size_t>(pass)].assign(tokens.begin(), tokens.end());
  }
  return drawn;
}

/// The same, each pass when the one before has drawn. What follows a token that is not finite means
/// nothing.
std::vector<std::vector<SampledToken>> ModelRunner::draft_by_passes(
    Step& step, std::span<const std::int32_t> drafts) {
  std::vector<TokenId> last;
  for (const Span& span : step.spans) last.push_back(span.tokens.front());
  std::vector<std::vector<SampledToken>> drawn;
  for (std::int32_t pass = 0; pass < drafts.front(); ++pass) {
    step.spans.resize(drafting(drafts, pass));
    for (std::size_t at = 0; at < step.spans.size(); ++at) {
      step.spans[at].tokens = std::span(last).subspan(at, 1);
    }
    const StepStaging::Staged staged = staging_.stage(step);
    add_rows(step);
    drawn.push_back(draw_rows(decoder_.draft(staged.tables, staged.sample_rows, pass > 0)));
    for (std::size_t at = 0; at < step.spans.size(); ++at) {
      if (drawn.back()[at].finite) last[at] = drawn.back()[at].token;
      Span& span = step.spans[at];
      ++span.position;
      span.samples.front() = span.samples.front().later(1);
      span.ring = no_ring;
      span.ring_entries = 0;
    }
  }
  return drawn;
}

}  // namespace hyb::models
