#include "core/engine/engine.h"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/scoped_flag.h"
#include "core/engine/engine_limits.h"
#include "core/engine/one_lane.h"
#include "core/engine/separate_lanes.h"
#include "core/engine/shared_lanes.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb {
namespace {

bool is_any(const Sequence&) { return true; }

}  // namespace

Engine::Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options)
    : tokenizer_(tokenizer),
      vocab_((check_engine(runner.capacity(), options), runner.capacity().vocab)),
      length_asked_(options.length_max),
      audits_(options.audit),
      cuts_are_exact_(options.prefixes.pages_are_exact),
      now_(options.now),
      answers_(runner, options, [this] { carry_out(); }),
      steps_(answers_, now_, [this](const FailedStep& failed) { lanes_->fail(failed); }),
      speculation_(options.speculation.is_on
                       ? std::make_unique<Speculation>(
                             options.speculation, answers_.prefixes, answers_.scheduler.step_plan(),
                             now_, [this](Step& step) { return steps_.draft(step); })
                       : nullptr),
      lanes_(make_lanes(options)),
      length_max_(options.length_max) {
  limit_length();
  if (!options.measures_prefill) return;
  prefill_.emplace(options.prefixes.cost, options.chunk_tokens, length_max_);
}

std::unique_ptr<Lanes> Engine::make_lanes(const EngineOptions& options) {
  if (options.link != nullptr) {
    return std::make_unique<SeparateLanes>(answers_, options, speculation_.get());
  }
  if (options.prefill_lane == nullptr) return std::make_unique<OneLane>(answers_, now_);
  return std::make_unique<SharedLanes>(answers_, *options.prefill_lane, now_, speculation_.get(),
                                       [this] { carry_out(); });
}

Engine::~Engine() {
  steps_.abandon();
  try {
    lanes_->wait_beside();
  } catch (...) {
    // The step has ended either way.
  }
}

/// The longest sequence that has room on either side, when it is alone.
void Engine::limit_length() {
  for (const Side* const side : lanes_->sides()) {
    length_max_ = length_limit(side->pool, length_max_);
  }
}

RequestId Engine::submit(Request request, Sink& sink) {
  require(!in_step_, "engine: a runner does not submit");
  check_fits(answers_.pool, std::ssize(request.prompt), length_max_, length_asked_);
  hyb::check(request,
             {.vocab = vocab_, .length_max = length_max_, .has_text = tokenizer_ != nullptr});
  if (!cuts_are_exact_) request.chunk_time = {};  // where measured times would change an answer
  if (request.chunk_time.count() > 0) request.chunk_tokens = pace_.tokens_in(request.chunk_time);
  const RequestId id = requests_.add({.id = {},
                                      .request = std::move(request),
                                      .length_max = length_max_,
                                      .tokenizer = tokenizer_,
                                      .vocab = vocab_,
                                      .submitted = now_()},
                                     sink);
  lanes_->add(requests_.choices(id));
  has_newcomers_ = true;
  return id;
}

void Engine::cancel(RequestId request) {
  require(!in_step_, "engine: a runner does not cancel");
  if (requests_.choices(request).empty()) return;
  // What these throw has its sequences start over; an error that persists comes back in the next
  // step.
  const auto ignore_errors = [](const auto& action) {
    try {
      action();
    } catch (...) {
    }
  };
  ignore_errors([&] { drain(request); });
  if (lanes_->runs_beside(request)) ignore_errors([&] { finish_beside(request); });
  for (Sequence* const sequence : requests_.choices(request)) {
    requests_.add_text(*sequence, sequence->end(FinishReason::cancelled));
    finish(*sequence);
  }
  requests_.deliver();
}

bool Engine::step() {
  require(!requests_.in_delivery() && !in_step_, "engine: step() is not called from inside a step");
  bool has_events = requests_.has_events();
  requests_.deliver();
  for (Side* const side : lanes_->sides()) side->has_failed = false;
  bool has_run = true;
  try {
    const ScopedFlag in_step(in_step_);
    has_run = run_step();
  } catch (const Error& error) {
    recover(error);
  }
  if (has_run && audits_) audit();
  has_events = has_events || requests_.has_events();
  requests_.deliver();
  return has_run || has_events;
}

/// False: there is nothing to do.
bool Engine::run_step() {
  while (!steps_.is_running()) {
    has_newcomers_ = false;
    const NextStep next = lanes_->next();
    if (next.beside) {
      apply(*next.beside);
      if (next.beside->was_waited_for) return true;
    } else if (next.plan.empty()) {
      return false;
    } else {
      if (speculation_) speculation_->add_drafts(next.plan, next.begin);
      steps_.launch(next.plan, speculation_.get());
    }
  }
  finish_step();
  return true;
}

/// The next step may be running after this.
void Engine::finish_step() {
  if (may_run_ahead()) steps_.run_ahead();
  const FinishedStep done = steps_.wait();
  steps_.apply([&] {
    if (steps_.is_text_awaited(done)) {
      const std::int32_t unended = requests_.unfinished();
      apply_results(done, has_stop_strings);
      if (requests_.unfinished() == unended) steps_.launch_prepared();
      apply_results(done, std::not_fn(has_stop_strings));
    } else {
      if (!steps_.is_running()) learn_cost(done);
      apply_results(done, is_any);
    }
    if (!speculation_) return;
    const Clock::time_point end = steps_.is_running() ? steps_.begin() : now_();
    speculation_->ran(done.plan, {done.times.begin, end, done.result.draft_entry_seconds});
  });
}

/// Lanes see to a newcomer when it is their turn to say what comes next: its prompt may run beside,
/// and what it resumes from is pinned.
bool Engine::may_run_ahead() {
  return !has_newcomers_ && steps_.may_run_ahead() && !lanes_->has_news() &&
         !(speculation_ && speculation_->may_draft_next(steps_.running()));
}

/// After this the engine's runner has no step. Only one that was launched ahead can be running
/// here: every sequence in it has drawn a token. What it draws for a cancelled request is dropped.
void Engine::drain(std::optional<RequestId> cancelled) {
  if (!steps_.is_running()) return;
  const FinishedStep done = steps_.wait();
  steps_.apply([&] { apply_results(done, is_any, cancelled); });
}

/// The same for what runs beside. The engine's runner has no step.
void Engine::finish_beside(std::optional<RequestId> cancelled) {
  const std::optional<BesideStep> ended = lanes_->wait_beside();
  if (ended) apply(*ended, cancelled);
}

void Engine::settle() {
  drain();
  finish_beside();
}

void Engine::carry_out() {
  drain();
  steps_.carry_out_orders();
}

void Engine::carry_out_orders() {
  require(!in_step_, "engine: a runner does not give orders");
  carry_out();
}

void Engine::prepare_memory() {
  drain();
  answers_.order_ahead();
  carry_out_orders();
}

/// After this the next step may retry what the failed one was to run; otherwise the error is
/// thrown. Sequences that no longer fit end here.
void Engine::recover(const Error& error) {
  const auto has_failed = [](const Side* side) { return side->has_failed; };
  if (std::ranges::none_of(lanes_->sides(), has_failed)) throw;
  finish_beside();
  const bool is_recovered = std::ranges::any_of(lanes_->sides(), [&](Side* side) {
    return side->has_failed && side->recovery.recover(side->pool, *side->runner, error);
  });
  if (!is_recovered) throw with_holdings(error, *answers_.runner);
  limit_length();
  for (Sequence* const sequence : requests_.limit(length_max_)) {
    end_with_error(*sequence,
                   fmt::format("memory: the device took back what {} tokens need; it has room "
                               "for {} now; end what else uses it, or shorten the prompt",
                               sequence->tokens(), length_max_));
  }
}

void Engine::learn_cost(const FinishedStep& done) {
  const auto work = prefill_work(done.spans, done.times.end - done.times.begin);
  if (work) {
    pace_.ran(*work);
    requests_.set_chunks(pace_);
  }
  const std::optional<PrefillCost> cost = work && prefill_ ? prefill_->ran(*work) : std::nullopt;
  if (!cost) return;
  for (Side* const side : lanes_->sides()) side->prefixes.set_cost(*cost);
  if (tier_ != nullptr) tier_->set_cost(*cost);
}

void Engine::apply(const BesideStep& ended, std::optional<RequestId> cancelled) {
  for (const auto& [sequence, error] : ended.hopeless) end_with_error(*sequence, error);
  if (!ended.finished) return;
  const FinishedStep& done = *ended.finished;
  try {
    learn_cost(done);
    if (speculation_) {
      speculation_->ran_beside(done.times.end - done.times.begin, done.result.draft_entry_seconds);
    }
    apply_results(done, is_any, cancelled);
  } catch (...) {
    const bool is_known = !lacks_memory(std::current_exception());
    lanes_->fail({.side = done.side, .plan = done.plan, .orders = {}, .is_known = is_known});
    throw;
  }
}

/// Lists the sequences that are wanted and have not ended.
template <typename Wanted>
void Engine::apply_results(const FinishedStep& done, const Wanted& is_wanted,
                           std::optional<RequestId> cancelled) {
  const auto rows_in = [&](std::size_t span) { return done.spans[span].samples.size(); };
  std::size_t rows = 0, branch = done.plan.size(), branch_rows = 0;
  for (std::size_t i = 0; i < done.plan.size(); ++i) branch_rows += rows_in(i);
  BranchResults branches;
  for (std::size_t i = 0; i < done.plan.size(); ++i) {
    const Assignment entry = done.plan[i];
    std::optional<std::size_t> row = rows_in(i) > 0 ? std::optional(rows) : std::nullopt;
    rows += rows_in(i);
    branches.clear();
    for (std::int32_t j = 0; j < entry.branches; ++j) {
      const std::vector<SampleRow>& samples = done.spans[branch++].samples;
      branches.push_back(
          {.rows = std::span(done.result.sampled).subspan(branch_rows, samples.size()),
           .rows_begin = samples.front().token});
      branch_rows += samples.size();
    }
    if (entry.sequence == nullptr || !is_wanted(*entry.sequence)) continue;
    if (entry.sequence->age().request == cancelled) row.reset();
    apply_result(done, entry, row, branches);
  }
}

/// Applies what one sequence, or one piece of it, ran. `row` is the index of its first sampled row;
/// empty: it has none.
void Engine::apply_result(const FinishedStep& done, const Assignment& entry,
                          std::optional<std::size_t> row, const BranchResults& branches) {
  entry.drafts > 0 ? apply_drafts(done, entry, row.value(), branches)
                   : apply_tokens(done, entry, row);
  if (entry.sequence->finished()) finish(*entry.sequence);
}

void Engine::apply_tokens(const FinishedStep& done, const Assignment& entry,
                          std::optional<std::size_t> row) {
  Sequence& sequence = *entry.sequence;
  sequence.ran(entry.tokens, done.times.begin);
  done.side->scheduler.ran(sequence);
  if (!sequence.end_if_prefilled(done.times.end) && row) {
    const SampledToken& sampled = done.result.sampled[*row];
    requests_.add_text(sequence, sequence.accept(sampled, done.times.end));
    // Its last token is in the step that runs.
    if (sequence.finished() && sampled.finite && steps_.is_running()) {
      sequence.ran(1, done.times.end);
    }
  }
}

void Engine::apply_drafts(const FinishedStep& done, const Assignment& entry, std::size_t row,
                          const BranchResults& branches) {
  Sequence& sequence = *entry.sequence;
  const auto rows = static_cast<std::size_t>(1 + entry.drafts);
  AcceptedDrafts accepted = accept_drafts(
      sequence, std::span(done.result.sampled).subspan(row, rows), branches, done.times.end);
  if (accepted.branch) sequence.memory().take_branch(*accepted.branch);
  speculation_->verified(entry, accepted.count, accepted.branch.has_value());
  sequence.ran(1 + accepted.count, done.times.begin,
               {.steps = 1,
                .accepted = accepted.count,
                .rejected = entry.drafts + entry.branch_drafts - accepted.count});
  done.side->scheduler.ran(sequence);
  requests_.add_text(sequence, std::move(accepted.text));
}

/// Destroys the sequence and, after its last choice, the request.
void Engine::finish(Sequence& sequence) {
  steps_.leave(sequence);
  Scheduler& scheduler = lanes_->leave(sequence).scheduler;
  if (speculation_) speculation_->forget(sequence);
  Completion completion = sequence.take_completion();
  std::exception_ptr failure;
  try {
    completion.reason == FinishReason::error ? scheduler.remove(sequence)
                                             : scheduler.retire(sequence);
  } catch (...) {
    scheduler.remove(sequence);
    failure = std::current_exception();  // it could not leave a snapshot; its answer is valid
  }
  requests_.end(sequence, std::move(completion));
  if (failure != nullptr) std::rethrow_exception(failure);
}

void Engine::end_with_error(Sequence& sequence, std::string text) {
  requests_.add_text(sequence, sequence.end(FinishReason::error, std::move(text)));
  finish(sequence);
}

PrefixCache& Engine::prefixes() {
  settle();
  return answers_.prefixes;
}

MemoryPool& Engine::pool() {
  settle();
  return answers_.pool;
}

SnapshotIo Engine::snapshot_io() {
  settle();
  return answers_.snapshot_io;
}

PrefixCache* Engine::prompt_prefixes() {
  settle();
  return lanes_->sides().size() > 1 ? &lanes_->sides().back()->prefixes : nullptr;
}

void Engine::add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                      const TierOptions& options) {
  require(tier_ == nullptr, "engine: there is one tier");
  auto tier = std::make_unique<SnapshotTier>(name, snapshot_io(), std::move(storage), options);
  lanes_->add_tier(*tier);
  tier_ = std::move(tier);
  answers_.prefixes.on_evict([this](std::span<const TokenId> key, const Snapshot& snapshot) {
    // Memory is read between steps. While one runs only a snapshot of an ended answer evicts, where
    // it is packed.
    if (!steps_.is_running()) tier_->spill(key, snapshot);
  });
}

EngineUsage Engine::usage() const {
  EngineUsage usage = {.pool = answers_.pool.usage(),
                       .cost = answers_.prefixes.options().cost,
                       .snapshots = answers_.prefixes.tree().size(),
                       .steps_ahead = steps_.steps_ahead(),
                       .speculation = speculation_ ? speculation_->stats() : SpeculationStats{}};
  for (const Side* const side : lanes_->sides()) side->add_to(usage);
  lanes_->add_to(usage);
  usage.steps = steps_.steps() + usage.prefill_steps;
  return usage;
}

std::int32_t Engine::prompt_progress(RequestId request) const {
  const std::vector<Sequence*> choices = requests_.choices(request);
  if (choices.empty()) return 0;
  const Sequence& first = *choices.front();
  return std::min(first.memory().length(), static_cast<std::int32_t>(first.prompt().size()));
}

void Engine::audit() const { lanes_->audit(requests_.audit(), requests_.unfinished() == 0); }

}  // namespace hyb
