#include "core/engine/engine.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/scoped_flag.h"
#include "core/engine/accept_drafts.h"
#include "core/engine/engine_limits.h"
#include "core/engine/engine_parts.h"
#include "core/engine/event_queue.h"
#include "core/engine/prompt_side.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"
#include "core/engine/speculation.h"
#include "core/engine/tier_waiter.h"
#include "core/engine/trace.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb {

/// What an engine knows, and how its steps follow each other.
///
/// A step is launched, waited for and applied; then its events are delivered. On an asynchronous
/// runner the next step is launched while the last one runs, where it can be foreseen: a step of
/// one token for each running sequence, none of which reaches its length, is cut for a snapshot or
/// lets another one start. Its tokens are on the device before the host sees them, so the device
/// never waits for the host: detokenising, emitting, printing and recording happen while it works.
/// A sequence that ends by a stop token, or is cancelled while a step runs, has run its last token
/// in that step: what it drew is dropped, and its memory holds all its tokens instead of all but
/// one. Where a sequence has stop strings its text decides whether there is a next step, so that is
/// prepared, but launched when the tokens have been looked at.
///
/// Where prompts have a lane of their own, its step is launched, and completed, while no other one
/// runs; in between the steps of the other lane go on as if it were not there, up to the first one
/// after it has run. What its sequences hold is pinned meanwhile: they are neither preempted nor
/// ended, and no order names their memory, since the orders that they need are carried out before
/// the launch. So either lane's step may fail without the other one's noticing, and a sequence
/// changes its lane by being in the other one's next plan. Where it has memory of its own
/// (PromptSide) its steps have their own orders, and sequences are handed over between steps.
class EngineState {
 public:
  EngineState(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options);
  ~EngineState();
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  // As in Engine.
  std::int32_t length_max() const { return length_max_; }
  RequestId submit(Request request, Sink& sink);
  void cancel(RequestId request);
  bool step();
  void carry_out_orders();
  void prepare_memory();
  bool idle() const { return unfinished_ == 0 && events_.empty(); }
  std::int32_t running() const {
    return scheduler_.running() + (prompts_ ? prompts_->running() : 0);
  }
  std::int32_t waiting() const { return unfinished_ - running(); }
  EngineUsage usage() const;
  PrefixCache& prefixes();
  MemoryPool& pool();
  SnapshotIo snapshot_io();
  PrefixCache* prompt_prefixes();
  void add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                const TierOptions& options);
  SnapshotTier* tier() { return tier_.get(); }
  void record(TraceRecorder* recorder) { recorder_ = recorder; }
  void audit() const;

 private:
  // How one step follows another.
  bool run_step();
  std::span<const Assignment> plan_lanes(bool& prompts_ran);
  std::span<const Assignment> plan_sides(bool& prompts_ran);
  bool is_prefill_under_way() const { return !prefill_step_.plan.empty(); }
  Scheduler& prompt_scheduler() { return prompts_ ? prompts_->scheduler() : scheduler_; }
  std::int64_t failed_steps() const {
    return failed_steps_ + (prompts_ ? prompts_->failed_steps() : 0);
  }
  void launch_prefill();
  void complete_prefill(std::optional<RequestId> cancelled = std::nullopt);
  void settle();
  std::span<const Assignment> plan(bool& prompts_ran);
  void fail_prefill(const std::exception_ptr& error);
  void lose_prefill();
  void launch(std::span<const Assignment> plan);
  void set_running(std::span<const Assignment> plan);
  void order_ahead();
  void start_step();
  StepResult wait();
  std::vector<std::vector<SampledToken>> model_drafts(Step& step);
  void finish_step();
  bool prepare_next();
  bool all_continue(std::span<const Assignment> plan, const StepResult& result) const;
  std::exception_ptr launch_next(std::span<const Assignment> plan);
  void apply_while_next_runs(std::span<const Assignment> plan, const StepResult& result,
                             const StepTimes& times);
  void launch_next_and_apply(std::span<const Assignment> plan, const StepResult& result,
                             const StepTimes& times);
  template <typename Wanted>
  void apply_results(std::span<const Assignment> plan, const StepResult& result,
                     const StepTimes& times, const Wanted& is_wanted);
  bool apply_result(const Assignment& entry, const StepResult& result,
                    std::optional<std::size_t> row, const StepTimes& times,
                    const BranchResults& branches = {});
  void apply_tokens(const Assignment& entry, const StepResult& result,
                    std::optional<std::size_t> row, const StepTimes& times);
  void apply_drafts(const Assignment& entry, std::span<const SampledToken> rows,
                    const BranchResults& branches, const StepTimes& times);
  void drain(std::optional<RequestId> cancelled = std::nullopt);
  void abandon() noexcept;
  void fail(std::span<const Assignment> plan, std::span<const Order> orders,
            const std::exception_ptr& error);
  template <typename Call>
  void call_runner(const Call& call, std::span<const Order> orders);
  template <typename Action>
  void fail_on_error(std::span<const Assignment> plan, const Action& action);
  void recover(const Error& error);
  void learn_cost(const Step& step, Clock::duration elapsed);

  // Requests and what their sinks are sent.
  void emit_text(const ActiveRequest& active, const Sequence& sequence, std::string text);
  void finish(ActiveRequest& active, Sequence& sequence);
  void end_with_error(Sequence& sequence, std::string text);

  Runner* runner_;
  Runner* prefill_lane_;  ///< null: runner_ has the prompts, too
  const Tokenizer* tokenizer_;
  Capacity capacity_;
  std::int32_t length_asked_;
  std::int32_t states_ahead_;
  bool audits_;
  MemoryPool pool_;
  std::int32_t length_max_;
  PrefixCache prefixes_;
  std::unique_ptr<SnapshotTier> tier_;
  std::unique_ptr<PromptSide> prompts_;  ///< null: prompts and answers share one memory
  std::map<RequestId, ActiveRequest> requests_;
  Scheduler scheduler_;
  std::optional<TierWaiter> waiter_;        ///< set where there is a tier
  std::optional<Speculation> speculation_;  ///< set where it is on
  EventQueue events_;
  Step step_;                       ///< the runner's last one
  Step next_step_;                  ///< the one it may get after that
  std::vector<bool> stop_in_text_;  ///< of next_step_'s sequences: which have stop strings
  RunningStep running_step_;
  Clock::time_point plan_begin_;  ///< of the plan that runs
  std::vector<bool> is_over_;     ///< of its sequences: which have ended, and are gone
  int launched_ = 0;              ///< steps that an asynchronous runner has
  PrefillStepUnderWay prefill_step_;
  OomRecovery recovery_;
  std::function<Clock::time_point()> now_;
  std::optional<PrefillMeter> prefill_;  ///< empty: the cost of prefill is not measured
  TraceRecorder* recorder_ = nullptr;
  std::int64_t submitted_ = 0;
  std::int64_t steps_ = 0, steps_ahead_ = 0, prefill_steps_ = 0, failed_steps_ = 0;
  std::int32_t unfinished_ = 0;
  bool may_order_ahead_ = false;  ///< sequences began since memory was last ordered ahead
  bool is_launch_lost_ = false;   ///< of a step that was to be launched ahead
  bool in_run_ = false;
};

EngineState::EngineState(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options)
    : runner_(&runner),
      prefill_lane_(options.prefill_lane),
      tokenizer_(tokenizer),
      capacity_((check_engine(runner.capacity(), options), runner.capacity())),
      length_asked_(options.length_max),
      states_ahead_(options.states_ahead),
      audits_(options.audit),
      pool_(pool_layout(capacity_, options), options.state_share.has_value()),
      length_max_(length_limit(pool_, options.length_max)),
      prefixes_(pool_, options.prefixes),
      scheduler_(pool_, prefixes_, scheduler_limits(capacity_, options)),
      now_(options.now) {
  pool_.set_backing([this](SuperblockId superblock, bool may_create) {
    return runner_->commit(superblock, may_create);
  });
  if (options.speculation.is_on) {
    speculation_.emplace(options.speculation, prefixes_, scheduler_.step_plan(), now_,
                         [this](Step& step) { return model_drafts(step); });
  }
  if (options.link != nullptr) {
    prompts_ =
        std::make_unique<PromptSide>(options, scheduler_limits(capacity_, options),
                                     EngineSide{&pool_, &prefixes_, &scheduler_, snapshot_io()});
    length_max_ = length_limit(prompts_->pool(), length_max_);
  }
  if (!options.measures_prefill) return;
  prefill_.emplace(options.prefixes.cost, options.chunk_tokens, length_max_);
}

EngineState::~EngineState() {
  abandon();
  if (!is_prefill_under_way()) return;
  prompt_scheduler().completed(prefill_step_.plan);
  try {
    prefill_lane_->wait();
  } catch (...) {
    // The step has ended either way.
  }
}

RequestId EngineState::submit(Request request, Sink& sink) {
  require(!in_run_, "engine: a runner does not submit");
  check_fits(pool_, std::ssize(request.prompt), length_max_, length_asked_);
  hyb::check(
      request,
      {.vocab = capacity_.vocab, .length_max = length_max_, .has_text = tokenizer_ != nullptr});
  const RequestId id{submitted_++};
  StopStrings stop(request.stop);
  ActiveRequest& active = requests_[id];
  active.terms = {.id = id,
                  .request = std::move(request),
                  .stop = std::move(stop),
                  .length_max = length_max_,
                  .tokenizer = tokenizer_,
                  .submitted = now_()};
  active.sink = &sink;
  const std::int32_t choices = active.terms.request.choices;
  for (std::int32_t choice = 0; choice < choices; ++choice) {
    active.choices.push_back(std::make_unique<Sequence>(active.terms, choice));
  }
  active.unfinished = active.choices.size();
  unfinished_ += choices;
  if (recorder_ != nullptr && !active.terms.request.prefill_only) {
    recorder_->submitted(id, choices, active.terms.request.prompt, active.terms.submitted);
  }
  active.terms.request.prompt = {};  // every choice has its own by now
  std::vector<Sequence*> sequences;
  for (const auto& sequence : active.choices) sequences.push_back(sequence.get());
  prompt_scheduler().add(sequences);
  return id;
}

void EngineState::cancel(RequestId request) {
  require(!in_run_, "engine: a runner does not cancel");
  if (!requests_.contains(request)) return;
  // What these throw has its sequences start over; an error that persists comes back in the next
  // step.
  const auto ignore_errors = [](const auto& action) {
    try {
      action();
    } catch (...) {
    }
  };
  ignore_errors([&] { drain(request); });
  if (std::ranges::any_of(prefill_step_.plan, [&](const Assignment& entry) {
        return entry.sequence->age().request == request;
      })) {
    ignore_errors([&] { complete_prefill(request); });
  }
  const auto found = requests_.find(request);
  // Its prompt was all that it wanted to run.
  if (found == requests_.end()) return events_.deliver();
  ActiveRequest& active = found->second;
  const std::size_t choices = active.choices.size();
  for (std::size_t i = 0; i < choices; ++i) {
    Sequence* sequence = active.choices[i].get();
    if (sequence == nullptr) continue;
    emit_text(active, *sequence, sequence->end(FinishReason::cancelled));
    const bool last = active.unfinished == 1;
    finish(active, *sequence);
    if (last) break;
  }
  events_.deliver();
}

bool EngineState::step() {
  require(!events_.in_delivery() && !in_run_, "engine: step() is not called from inside a step");
  bool has_events = !events_.empty();
  events_.deliver();
  const std::int64_t failed = failed_steps();
  try {
    if (!run_step()) {
      has_events = has_events || !events_.empty();
      events_.deliver();
      return has_events;
    }
  } catch (const Error& error) {
    if (failed_steps() == failed) throw;
    recover(error);
  }
  if (audits_) audit();
  events_.deliver();
  return true;
}

EngineUsage EngineState::usage() const {
  EngineUsage usage = {.pool = pool_.usage(),
                       .prefixes = prefixes_.stats(),
                       .cost = prefixes_.options().cost,
                       .snapshots = prefixes_.tree().size(),
                       .steps = steps_,
                       .steps_ahead = steps_ahead_,
                       .prefill_steps = prefill_steps_,
                       .failed_steps = failed_steps_,
                       .tier_waits = waiter_ ? waiter_->waits() : 0,
                       .speculation = speculation_ ? speculation_->stats() : SpeculationStats{}};
  add(usage, scheduler_.counts());
  if (prompts_) prompts_->add_to(usage);
  return usage;
}

/// After this no step is running in either lane.
void EngineState::settle() {
  drain();
  complete_prefill();
}

PrefixCache& EngineState::prefixes() {
  settle();
  return prefixes_;
}

MemoryPool& EngineState::pool() {
  settle();
  return pool_;
}

SnapshotIo EngineState::snapshot_io() {
  settle();
  return {pool_, *runner_, prefixes_, [this] { carry_out_orders(); }};
}

PrefixCache* EngineState::prompt_prefixes() {
  settle();
  return prompts_ ? &prompts_->prefixes() : nullptr;
}

void EngineState::add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                           const TierOptions& options) {
  require(tier_ == nullptr && !prompts_, "engine: there is one tier, and one memory before it");
  tier_ = std::make_unique<SnapshotTier>(name, snapshot_io(), std::move(storage), options);
  waiter_.emplace(*tier_, prefixes_, scheduler_);
  prefixes_.on_evict([this](std::span<const TokenId> key, const Snapshot& snapshot) {
    // Memory is read between steps. While one runs only a snapshot of an ended answer evicts, where
    // it is packed.
    if (running_step_.plan.empty()) tier_->spill(key, snapshot);
  });
}

void EngineState::audit() const {
  std::vector<const Checkpoint*> others;
  if (tier_) others = tier_->arriving();
  if (prompts_) others = prompts_->handovers().held_of_answers();
  scheduler_.audit(others);
  if (prompts_) prompts_->audit(unfinished_ == 0);
  std::size_t found = 0, awaiting = 0;
  for (const auto& [id, active] : requests_) {
    require(active.unfinished > 0, "engine: a request has unfinished choices");
    found += active.unfinished;
    for (const auto& choice : active.choices) {
      if (choice != nullptr && choice->awaits_snapshot()) ++awaiting;
    }
  }
  const std::size_t held = prompts_ ? prompts_->handovers().waiting() : 0;
  require(awaiting == (waiter_ ? waiter_->waiting() : held),
          "engine: what waits for a snapshot is counted where it is fetched");
  require(found == static_cast<std::size_t>(unfinished_),
          "engine: unfinished choices are counted once");
  require(found > 0 || !others.empty() || prefixes_.tree().size() > 0 || pool_.all_free(),
          "engine: without sequences and snapshots no memory is held");
}

/// Empty: there is nothing to do, but that prompts may have run. Waits for the tier when every
/// sequence that could run does.
std::span<const Assignment> EngineState::plan(bool& prompts_ran) {
  if (prompts_) return plan_sides(prompts_ran);
  if (prefill_lane_ != nullptr) return plan_lanes(prompts_ran);
  const auto plan_now = [&] {
    if (waiter_) waiter_->poll();
    plan_begin_ = now_();
    return scheduler_.plan(Lane::all, tier_ != nullptr && !tier_->arriving().empty());
  };
  std::span<const Assignment> assignments = plan_now();
  while (assignments.empty() && waiter_ && waiter_->is_awaited()) {
    waiter_->wait();
    assignments = plan_now();
  }
  return assignments;
}

/// After this the next step may retry what the failed one was to run; otherwise the error is
/// thrown. Sequences that no longer fit end here.
void EngineState::recover(const Error& error) {
  complete_prefill();
  const bool is_recovered =
      (prompts_ && prompts_->recover(error)) || recovery_.recover(pool_, *runner_, error);
  if (!is_recovered) throw with_holdings(error, *runner_);
  length_max_ = length_limit(pool_, length_max_);
  if (prompts_) length_max_ = length_limit(prompts_->pool(), length_max_);
  std::vector<Sequence*> too_long;
  for (auto& [id, active] : requests_) {
    active.terms.length_max = std::min(active.terms.length_max, length_max_);
    for (const auto& choice : active.choices) {
      if (choice != nullptr && choice->tokens() >= length_max_) too_long.push_back(choice.get());
    }
  }
  for (Sequence* const sequence : too_long) {
    end_with_error(*sequence,
                   fmt::format("memory: the device took back what {} tokens need; it has room "
                               "for {} now; end what else uses it, or shorten the prompt",
                               sequence->tokens(), length_max_));
  }
}

void EngineState::end_with_error(Sequence& sequence, std::string text) {
  ActiveRequest& active = requests_.at(sequence.age().request);
  emit_text(active, sequence, sequence.fail(std::move(text)));
  finish(active, sequence);
}

/// Of one sequence in a finished step, or of one piece. `row`: the index of its sampled row; empty:
/// it has none. False: the sequence has ended, and is gone.
bool EngineState::apply_result(const Assignment& entry, const StepResult& result,
                               std::optional<std::size_t> row, const StepTimes& times,
                               const BranchResults& branches) {
  Sequence& sequence = *entry.sequence;
  if (entry.drafts > 0) {
    const auto rows = static_cast<std::size_t>(1 + entry.drafts);
    apply_drafts(entry, std::span(result.sampled).subspan(*row, rows), branches, times);
  } else {
    apply_tokens(entry, result, row, times);
  }
  if (!sequence.finished()) return true;
  finish(requests_.at(sequence.age().request), sequence);
  return false;
}

/// Of a sequence without drafts.
void EngineState::apply_tokens(const Assignment& entry, const StepResult& result,
                               std::optional<std::size_t> row, const StepTimes& times) {
  Sequence& sequence = *entry.sequence;
  sequence.ran(entry.tokens, times.begin);
  sequence.scheduler()->ran(sequence);
  if (sequence.is_prefilled()) {
    sequence.end_prefill(times.end);
  } else if (row) {
    const SampledToken& sampled = result.sampled[*row];
    std::string text = sequence.accept(sampled, times.end);
    if (!text.empty()) emit_text(requests_.at(sequence.age().request), sequence, std::move(text));
    // Its last token is in the step that runs.
    if (sequence.finished() && sampled.finite && !running_step_.plan.empty()) {
      sequence.ran(1, times.end);
    }
  }
}

/// Of a sequence that had drafts.
void EngineState::apply_drafts(const Assignment& entry, std::span<const SampledToken> rows,
                               const BranchResults& branches, const StepTimes& times) {
  Sequence& sequence = *entry.sequence;
  AcceptedDrafts accepted = accept_drafts(sequence, rows, branches, times.end);
  if (accepted.branch) sequence.memory().take_branch(*accepted.branch);
  sequence.count_drafts(entry.drafts + entry.branch_drafts, accepted.count);
  speculation_->verified(entry, accepted.count, accepted.branch.has_value());
  sequence.ran(1 + accepted.count, times.begin, accepted.count);
  scheduler_.ran(sequence);
  emit_text(requests_.at(sequence.age().request), sequence, std::move(accepted.text));
}

void EngineState::emit_text(const ActiveRequest& active, const Sequence& sequence,
                            std::string text) {
  events_.add_text(*active.sink, active.terms.id, sequence.age().choice, std::move(text));
}

/// Destroys the sequence and, after its last choice, the request.
void EngineState::finish(ActiveRequest& active, Sequence& sequence) {
  const ArrivalOrder order = sequence.age();
  if (waiter_) waiter_->leave(sequence);
  if (prompts_) prompts_->handovers().leave(sequence);
  if (speculation_) speculation_->forget(sequence);
  Completion completion = sequence.take_completion();
  Scheduler& scheduler = sequence.scheduler() == nullptr ? scheduler_ : *sequence.scheduler();
  std::exception_ptr failure;
  try {
    completion.reason == FinishReason::error ? scheduler.remove(sequence)
                                             : scheduler.retire(sequence);
  } catch (...) {
    scheduler.remove(sequence);
    failure = std::current_exception();  // it could not leave a snapshot; its answer is valid
  }
  if (recorder_ != nullptr && !active.terms.request.prefill_only) {
    recorder_->ended(order.request, order.choice, completion.tokens);
  }
  events_.add_end(*active.sink, order.request, order.choice, std::move(completion));
  active.choices[static_cast<std::size_t>(order.choice)].reset();
  --unfinished_;
  if (--active.unfinished == 0) requests_.erase(order.request);
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// False: there is nothing to do.
bool EngineState::run_step() {
  if (running_step_.plan.empty()) {
    bool prompts_ran = false;
    const std::span<const Assignment> planned = plan(prompts_ran);
    if (planned.empty()) return prompts_ran;
    launch(planned);
  }
  finish_step();
  return true;
}

/// Where prompts have a lane of their own, and the other lane has nothing under way: the plan of
/// that one. The prefill lane's step is waited for only when there is nothing else to do.
std::span<const Assignment> EngineState::plan_lanes(bool& prompts_ran) {
  if (is_prefill_under_way() && prefill_lane_->is_done()) complete_prefill();
  // Where the sequences of either lane wait for the others' memory, all are preempted and one
  // starts.
  constexpr int attempts = 3;
  for (int attempt = 0; attempt < attempts;) {
    if (!is_prefill_under_way()) launch_prefill();
    plan_begin_ = now_();
    const std::span<const Assignment> planned = scheduler_.plan(Lane::decode);
    if (!planned.empty()) return planned;
    if (is_prefill_under_way()) break;
    const bool all_wait = waiter_ && waiter_->is_awaited();
    all_wait ? waiter_->wait() : static_cast<void>(++attempt);
  }
  prompts_ran = is_prefill_under_way();
  complete_prefill();
  return {};
}

/// The same where each lane has memory of its own.
std::span<const Assignment> EngineState::plan_sides(bool& prompts_ran) {
  Handovers& handovers = prompts_->handovers();
  // Sequences may go from one side to the other before there is a step for some of them.
  constexpr int attempts = 8;
  for (int attempt = 0; unfinished_ > 0 || is_prefill_under_way(); ++attempt) {
    require(attempt < attempts, "engine: some sequence of either side can always continue");
    if (is_prefill_under_way() && prefill_lane_->is_done()) complete_prefill();
    handovers.advance(!is_prefill_under_way());
    if (!is_prefill_under_way()) launch_prefill();
    plan_begin_ = now_();
    const std::span<const Assignment> planned = scheduler_.plan(Lane::all, true);
    if (!planned.empty()) return planned;
    if (handovers.is_copying()) {
      handovers.wait();
      attempt = 0;
    } else if (is_prefill_under_way()) {
      prompts_ran = true;
      complete_prefill();
      return {};
    }
  }
  return {};
}

/// In memory that others use its orders are carried out before it: nothing else runs now, and while
/// it does no order is open that it waits for.
void EngineState::launch_prefill() {
  if (waiter_) waiter_->poll();
  const bool others_hold = prompts_ && prompts_->handovers().holds_prompts();
  const std::span<const Assignment> planned = prompt_scheduler().plan(Lane::prefill, others_hold);
  if (planned.empty()) return;
  prefill_step_.step.orders.clear();
  prompts_ ? prompts_->pool().take_orders(prefill_step_.step.orders) : carry_out_orders();
  fill_step(prefill_step_.step, planned, speculation_);
  prefill_step_.plan.assign(planned.begin(), planned.end());
  prefill_step_.begin = now_();
  prompt_scheduler().launched(planned);
  may_order_ahead_ = true;
  ++steps_;
  ++prefill_steps_;
  try {
    const ScopedFlag running(in_run_);
    prefill_lane_->launch(prefill_step_.step);
  } catch (...) {
    fail_prefill(std::current_exception());
    throw;
  }
}

/// What a step without orders was to write belongs to its own sequences.
void EngineState::fail_prefill(const std::exception_ptr& error) {
  const std::vector<Assignment> failed = std::exchange(prefill_step_.plan, {});
  prompt_scheduler().completed(failed);
  if (prompts_) return prompts_->fail(failed, prefill_step_.step.orders, error);
  ++failed_steps_;
  scheduler_.release(failed);
}

/// What a lost step had is run again; but one that is in many of them may be why they are lost.
void EngineState::lose_prefill() {
  constexpr int lost_steps_max = 16;
  const std::vector<Assignment> lost = prefill_step_.plan;
  fail_prefill(std::current_exception());
  for (const Assignment& entry : lost) {
    if (entry.cuts > 0 || entry.sequence->lose_step() < lost_steps_max) continue;
    end_with_error(*entry.sequence,
                   fmt::format("prefill lane: {} processes ended amid steps of this request; leave "
                               "--disaggregate out",
                               lost_steps_max));
  }
}

/// Waits for the step of the prefill lane, if there is one, and applies it. No other one is
/// running.
void EngineState::complete_prefill(std::optional<RequestId> cancelled) {
  if (!is_prefill_under_way()) return;
  std::size_t rows = 0;
  for (const Span& span : prefill_step_.step.spans) rows += span.samples.size();
  StepResult result;
  try {
    const ScopedFlag running(in_run_);
    result = prefill_lane_->wait();
    check_result(result, rows, capacity_.vocab);
  } catch (const StepLost&) {
    return lose_prefill();
  } catch (...) {
    fail_prefill(std::current_exception());
    throw;
  }
  if (rows > 0) prompts_ ? prompts_->drew() : recovery_.reset();
  const std::vector<Assignment> done = std::exchange(prefill_step_.plan, {});
  prompt_scheduler().completed(done);
  const StepTimes times = {.begin = prefill_step_.begin, .end = now_()};
  try {
    if (prefill_) learn_cost(prefill_step_.step, times.end - times.begin);
    if (speculation_) speculation_->ran_beside(times.end - times.begin, result.draft_entry_seconds);
    std::size_t row = 0;
    for (std::size_t i = 0; i < done.size(); ++i) {
      const std::size_t count = prefill_step_.step.spans[i].samples.size();
      const bool is_drawn = count > 0 && done[i].sequence->age().request != cancelled;
      apply_result(done[i], result, is_drawn ? std::optional(row) : std::nullopt, times);
      row += count;
    }
  } catch (...) {
    prompts_ ? prompts_->fail(done, {}, std::current_exception())
             : fail(done, {}, std::current_exception());
    throw;
  }
}

void EngineState::launch(std::span<const Assignment> plan) {
  if (speculation_) speculation_->add_drafts(plan, plan_begin_);
  const bool all_answer = fill_step(step_, plan, speculation_);
  require(all_answer || prefill_lane_ == nullptr || prompts_,
          "engine: a first token is drawn where the last token of its prompt ran");
  if (!all_answer) {
    may_order_ahead_ = true;
  } else if (may_order_ahead_) {
    order_ahead();
  }
  set_running(plan);
  start_step();
}

void EngineState::set_running(std::span<const Assignment> plan) {
  running_step_ = {.plan = plan, .begin = now_()};
  is_over_.assign(plan.size(), false);
}

/// Once after sequences began, not in every step: memory that is then given back to the machine
/// stays there.
void EngineState::order_ahead() {
  may_order_ahead_ = false;
  pool_.order_ahead(states_ahead_);
}

/// On a synchronous runner the step runs in wait().
void EngineState::start_step() {
  pool_.take_orders(step_.orders);
  ++steps_;
  if (!runner_->is_async()) return;
  call_runner([&] { runner_->launch(step_); }, step_.orders);
  ++launched_;
}

/// What the runner throws ends the step, which has these orders.
template <typename Call>
void EngineState::call_runner(const Call& call, std::span<const Order> orders) {
  try {
    const ScopedFlag running(in_run_);
    call();
  } catch (...) {
    fail(running_step_.plan, orders, std::current_exception());
    throw;
  }
}

/// A failed step leaves unknown bytes where it and its orders were to write, and a step whose
/// results were applied in part leaves sequences and states at different lengths. Where another
/// step is running, or what ended while this one ran was written by it, no memory is trusted, nor
/// where the device lacks some: what is ordered again takes no memory then.
void EngineState::fail(std::span<const Assignment> plan, std::span<const Order> orders,
                       const std::exception_ptr& error) {
  ++failed_steps_;
  const bool is_alone = !std::exchange(is_launch_lost_, false) && launched_ == 0;
  const bool has_ended =
      !running_step_.plan.empty() && std::ranges::find(is_over_, true) != is_over_.end();
  const bool is_known = is_alone && !has_ended && !lacks_memory(error);
  abandon();
  if (tier_ != nullptr) tier_->drop_arriving();
  if (prompts_) prompts_->handovers().lose_answers();
  if (is_known) {
    scheduler_.release_failed(plan, orders);
  } else {
    scheduler_.release_all();
  }
  step_.orders.clear();
  next_step_.orders.clear();
}

/// The sequences of the step are as they were before it.
StepResult EngineState::wait() {
  std::size_t rows = 0;
  for (const Span& span : step_.spans) rows += span.samples.size();
  StepResult result;
  // One that is launched ahead, or was to be, has none.
  std::vector<Order>& orders = step_.orders.empty() ? next_step_.orders : step_.orders;
  call_runner(
      [&] {
        result = launched_ > 0 ? (--launched_, runner_->wait()) : runner_->run(step_);
        check_result(result, rows, capacity_.vocab);
      },
      orders);
  orders.clear();  // they were carried out, whatever becomes of the results
  if (rows > 0) recovery_.reset();
  return result;
}

/// Before the step that verifies them. What fails here ends that step.
std::vector<std::vector<SampledToken>> EngineState::model_drafts(Step& step) {
  pool_.take_orders(step.orders);
  std::vector<std::vector<SampledToken>> drafts;
  call_runner([&] { drafts = runner_->draft(step); }, step.orders);
  return drafts;
}

/// Runs the current step to its end. The next one may be running after this.
void EngineState::finish_step() {
  const RunningStep done = running_step_;
  const bool is_prepared = prepare_next();
  const bool is_launched_now =
      is_prepared && std::ranges::find(stop_in_text_, true) == stop_in_text_.end();
  const std::exception_ptr failure = is_launched_now ? launch_next(done.plan) : nullptr;
  const bool has_next = is_launched_now && failure == nullptr;
  const StepResult result = wait();
  const StepTimes times = {.begin = done.begin, .end = now_()};
  running_step_ = has_next ? RunningStep{done.plan, times.end} : RunningStep{};
  fail_on_error(done.plan, [&] {
    if (has_next) {
      apply_while_next_runs(done.plan, result, times);
    } else if (is_prepared && !is_launched_now && all_continue(done.plan, result)) {
      launch_next_and_apply(done.plan, result, times);
    } else {
      if (prefill_) learn_cost(step_, times.end - times.begin);
      apply_results(done.plan, result, times, [&](std::size_t i) { return !is_over_[i]; });
      if (failure != nullptr) std::rethrow_exception(failure);
    }
    const Clock::time_point end = running_step_.plan.empty() ? now_() : running_step_.begin;
    if (speculation_) speculation_->ran(done.plan, {done.begin, end, result.draft_entry_seconds});
  });
}

/// The next step runs the token that each sequence draws here, also where that ends it.
void EngineState::apply_while_next_runs(std::span<const Assignment> plan, const StepResult& result,
                                        const StepTimes& times) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    is_over_[i] = !apply_result(plan[i], result, i, times);
  }
}

/// For applying results of a step that has run: after an error no step is running.
template <typename Action>
void EngineState::fail_on_error(std::span<const Assignment> plan, const Action& action) {
  try {
    action();
  } catch (...) {
    fail(plan, {}, std::current_exception());
    throw;
  }
}

/// step_ has the spans of the finished step, or of the next one, whose rows are the same.
template <typename Wanted>
void EngineState::apply_results(std::span<const Assignment> plan, const StepResult& result,
                                const StepTimes& times, const Wanted& is_wanted) {
  std::size_t rows = 0, branch = plan.size(), branch_rows = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) branch_rows += step_.spans[i].samples.size();
  BranchResults branches;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const std::size_t count = step_.spans[i].samples.size();
    const std::optional<std::size_t> row = count > 0 ? std::optional(rows) : std::nullopt;
    rows += count;
    branches.clear();
    for (std::int32_t j = 0; j < plan[i].branches; ++j) {
      const std::vector<SampleRow>& samples = step_.spans[branch++].samples;
      branches.push_back({.rows = std::span(result.sampled).subspan(branch_rows, samples.size()),
                          .rows_begin = samples.front().token});
      branch_rows += samples.size();
    }
    if (is_wanted(i)) apply_result(plan[i], result, row, times, branches);
  }
}

/// Sequences with stop strings come first, since their text may end them; the others can be applied
/// while the next step runs.
void EngineState::launch_next_and_apply(std::span<const Assignment> plan, const StepResult& result,
                                        const StepTimes& times) {
  const std::int32_t unended = unfinished_;
  apply_results(plan, result, times, [&](std::size_t i) { return stop_in_text_[i]; });
  std::exception_ptr failure;
  if (unfinished_ == unended) failure = launch_next(plan);
  apply_results(plan, result, times, [&](std::size_t i) { return !stop_in_text_[i]; });
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// Prepares the step that may follow the running one. False: it has to be planned.
bool EngineState::prepare_next() {
  const std::span<const Assignment> plan = running_step_.plan;
  if (std::ranges::find(is_over_, true) != is_over_.end()) return false;
  if (!runner_->is_async() || (waiter_ && waiter_->is_awaited())) return false;
  if (is_prefill_under_way() && prefill_lane_->is_done()) return false;
  if (prompts_ && prompts_->handovers().has_news(!is_prefill_under_way())) return false;
  if (speculation_ && speculation_->may_draft_next(plan)) return false;
  // Orders would ride in a step that may never be launched.
  if (pool_.has_orders() || !scheduler_.predicts_next(plan) || pool_.has_orders()) return false;
  next_step_.orders.clear();
  next_step_.draft_entries = step_.draft_entries;
  next_step_.spans.resize(plan.size());
  stop_in_text_.resize(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    plan[i].sequence->fill_next(next_step_.spans[i]);
    stop_in_text_[i] = !plan[i].sequence->request().stop.empty();
  }
  try {
    const ScopedFlag running(in_run_);
    runner_->prepare(next_step_);
  } catch (const std::exception&) {
    return false;  // nothing has changed: the next launch fails with the same error
  }
  return true;
}

bool EngineState::all_continue(std::span<const Assignment> plan, const StepResult& result) const {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].sequence->continues_after(result.sampled[i])) return false;
  }
  return true;
}

/// Results of the running step, or of the one before, are not applied yet, so an error is returned,
/// not thrown.
std::exception_ptr EngineState::launch_next(std::span<const Assignment> plan) {
  std::swap(step_, next_step_);
  pool_.pass_step();
  ++steps_;
  ++steps_ahead_;
  try {
    const ScopedFlag running(in_run_);
    runner_->launch_prepared();
  } catch (...) {
    is_launch_lost_ = true;
    return std::current_exception();
  }
  ++launched_;
  set_running(plan);
  return nullptr;
}

/// After this no step is running. Only a step that was launched ahead can be running here: every
/// sequence in it has drawn a token.
void EngineState::drain(std::optional<RequestId> cancelled) {
  if (running_step_.plan.empty()) return;
  const StepResult result = wait();
  const RunningStep done = std::exchange(running_step_, {});
  const StepTimes times = {.begin = done.begin, .end = now_()};
  fail_on_error(done.plan, [&] {
    for (std::size_t i = 0; i < done.plan.size(); ++i) {
      if (is_over_[i]) continue;
      const bool is_dropped = done.plan[i].sequence->age().request == cancelled;
      apply_result(done.plan[i], result, is_dropped ? std::nullopt : std::optional(i), times);
    }
  });
}

/// Drops what running steps draw.
void EngineState::abandon() noexcept {
  running_step_ = {};
  for (; launched_ > 0; --launched_) {
    try {
      runner_->wait();
    } catch (...) {
      // The step has ended either way.
    }
  }
}

void EngineState::carry_out_orders() {
  require(!in_run_, "engine: a runner does not give orders");
  drain();
  if (!pool_.has_orders()) return;
  step_.spans.clear();
  start_step();
  wait();
}

void EngineState::prepare_memory() {
  drain();
  order_ahead();
  carry_out_orders();
}

void EngineState::learn_cost(const Step& step, Clock::duration elapsed) {
  const std::optional<PrefillStep> work = prefill_work(step, elapsed);
  const std::optional<PrefillCost> cost = work ? prefill_->ran(*work) : std::nullopt;
  if (!cost) return;
  prefixes_.set_cost(*cost);
  if (prompts_) prompts_->prefixes().set_cost(*cost);
  if (tier_ != nullptr) tier_->set_cost(*cost);
}

Engine::Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options)
    : state_(std::make_unique<EngineState>(runner, tokenizer, options)) {}
Engine::~Engine() = default;

std::int32_t Engine::length_max() const { return state_->length_max(); }
RequestId Engine::submit(Request request, Sink& sink) {
  return state_->submit(std::move(request), sink);
}
void Engine::cancel(RequestId request) { state_->cancel(request); }
bool Engine::step() { return state_->step(); }
void Engine::carry_out_orders() { state_->carry_out_orders(); }
void Engine::prepare_memory() { state_->prepare_memory(); }
bool Engine::idle() const { return state_->idle(); }
std::int32_t Engine::running() const { return state_->running(); }
std::int32_t Engine::waiting() const { return state_->waiting(); }
EngineUsage Engine::usage() const { return state_->usage(); }
PrefixCache& Engine::prefixes() { return state_->prefixes(); }
MemoryPool& Engine::pool() { return state_->pool(); }
PrefixCache* Engine::prompt_prefixes() { return state_->prompt_prefixes(); }
SnapshotIo Engine::snapshot_io() { return state_->snapshot_io(); }
void Engine::add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                      const TierOptions& options) {
  state_->add_tier(name, std::move(storage), options);
}
SnapshotTier* Engine::tier() { return state_->tier(); }
void Engine::record(TraceRecorder* recorder) { state_->record(recorder); }
void Engine::audit() const { state_->audit(); }

}  // namespace hyb
