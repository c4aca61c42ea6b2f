#include "core/engine/engine.h"

#include <algorithm>
#include <cstdint>
#include <deque>
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
#include "core/base/marked.h"
#include "core/engine/engine_limits.h"
#include "core/engine/prefill_watch.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"
#include "core/engine/tier_waiter.h"
#include "core/engine/trace.h"
#include "core/memory/tier/snapshot_tier.h"

namespace hyb {

struct ActiveRequest {
  RequestTerms terms;
  Sink* sink;
  std::vector<std::unique_ptr<Sequence>> choices;  ///< null: ended
  std::size_t unfinished = 0;
};

/// What a sink is still to hear: text, or the end.
struct Event {
  Sink* sink;
  RequestId request;
  std::int32_t choice;
  std::string text;
  std::optional<Completion> completion;
};

/// A step that the runner was given: who runs in it, and since when.
struct StepUnderWay {
  std::span<const Assignment> plan;  ///< the scheduler's; empty: no step is under way
  Clock::time_point begin;
};

/// When a step that is done was launched, and when its tokens were there.
struct StepTimes {
  Clock::time_point begin, end;
};

/// What an engine knows, and how its steps follow each other (engine_steps.cpp).
///
/// A step goes through launch, wait and apply_result; then its events are delivered. On a runner
/// whose steps run beside the host, the next step is begun before the last one is settled, where it
/// can be foreseen: a step of one token for each sequence that runs, none of which ends, is cut for
/// a snapshot or makes another one start. Its tables are made while the step before runs, and its
/// tokens are already on the device when the host sees them: between the arrival of a step's tokens
/// and the launch of the next nothing is done but to look at each for an end of the answer.
/// Detokenising, telling, printing and recording wait until the device is busy again. So no token
/// is ever run that a sequence does not have, and no snapshot stands elsewhere than without this;
/// but who is cancelled while a step is under way has run its last token in it: what that drew is
/// dropped, and its memory stands at all its tokens instead of one before.
struct Engine::Books {
  Books(Runner& runner_, const Tokenizer* tokenizer_, const EngineOptions& options);

  // engine_steps.cpp
  bool run_step();
  void drain(std::optional<RequestId> cancelled = std::nullopt);
  void abandon() noexcept;
  void carry_out_orders();

  // engine_books.cpp
  std::span<const Assignment> plan();
  void recover(const Error& error);
  void apply_result(const Assignment& entry, const StepResult& result,
                    std::optional<std::size_t> row, const StepTimes& times);
  void emit_text(const ActiveRequest& active, const Sequence& sequence, std::string text);
  void finish(ActiveRequest& active, Sequence& sequence);
  void deliver();

  Runner* runner;
  const Tokenizer* tokenizer;
  Capacity capacity;
  std::int32_t length_asked;
  bool audits;
  MemoryPool pool;
  std::int32_t length_max;
  PrefixCache prefixes;
  std::unique_ptr<SnapshotTier> tier;
  std::vector<RequestId> newcomers;  ///< what is known of their prompts was not looked for yet
  std::map<RequestId, ActiveRequest> requests;
  Scheduler scheduler;
  std::optional<TierWaiter> waiter;  ///< there is one where there is a tier
  std::deque<Event> events;
  Step step;                       ///< the runner's last one
  Step next_step;                  ///< what it is to be given then
  std::vector<bool> stop_in_text;  ///< of next_step's sequences: which have stop strings
  StepUnderWay under_way;
  OomRecovery recovery;
  std::function<Clock::time_point()> now;
  std::optional<PrefillWatch> watch;  ///< none: prefill costs what it was said to cost
  TraceRecorder* recorder = nullptr;
  std::int64_t submitted = 0;
  std::int64_t steps = 0, steps_ahead = 0, failed_steps = 0;
  std::int32_t unfinished = 0;
  bool in_run = false;
  bool in_delivery = false;

 private:
  void launch(std::span<const Assignment> plan);
  void finish_step();
  void begin();
  StepResult wait();
  void fail();
  template <typename Call>
  void call_runner(const Call& call);
  template <typename Action>
  void or_fail(const Action& action);
  template <typename Wanted>
  void apply_results(std::span<const Assignment> plan, const StepResult& result,
                     const StepTimes& times, const Wanted& is_wanted);
  void launch_next_and_apply(std::span<const Assignment> plan, const StepResult& result,
                             const StepTimes& times);
  bool prepare_next();
  bool goes_on(std::span<const Assignment> plan, const StepResult& result) const;
  std::exception_ptr launch_next(std::span<const Assignment> plan);
  void learn_cost(Clock::duration elapsed);
  void receive_newcomers();
  void draw_early(ActiveRequest& active, Sequence& sequence);
  void keep_logits(Sequence& sequence, const StepResult& result, std::size_t row);
};

Engine::Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options)
    : books_(std::make_unique<Books>(runner, tokenizer, options)) {}

Engine::~Engine() { books_->abandon(); }
std::int32_t Engine::length_max() const { return books_->length_max; }

RequestId Engine::submit(Request request, Sink& sink) {
  Books& books = *books_;
  require(!books.in_run, "engine: a runner does not submit");
  check_fits(books.pool, std::ssize(request.prompt), books.length_max, books.length_asked);
  hyb::check(request, {.vocab = books.capacity.vocab,
                       .length_max = books.length_max,
                       .has_text = books.tokenizer != nullptr});
  const RequestId id{books.submitted++};
  StopStrings stop(request.stop);
  ActiveRequest& active = books.requests[id];
  active.terms = {.id = id,
                  .request = std::move(request),
                  .stop = std::move(stop),
                  .length_max = books.length_max,
                  .tokenizer = books.tokenizer,
                  .submitted = books.now()};
  active.sink = &sink;
  books.newcomers.push_back(id);
  const std::int32_t choices = active.terms.request.choices;
  for (std::int32_t choice = 0; choice < choices; ++choice) {
    active.choices.push_back(std::make_unique<Sequence>(active.terms, choice));
  }
  active.unfinished = active.choices.size();
  books.unfinished += choices;
  if (books.recorder != nullptr && !active.terms.request.prefill_only) {
    books.recorder->submitted(id, choices, active.terms.request.prompt, active.terms.submitted);
  }
  active.terms.request.prompt = {};  // every choice has its own by now
  std::vector<Sequence*> sequences;
  for (const auto& sequence : active.choices) sequences.push_back(sequence.get());
  books.scheduler.add(sequences);
  return id;
}

void Engine::cancel(RequestId request) {
  Books& books = *books_;
  require(!books.in_run, "engine: a runner does not cancel");
  const auto found = books.requests.find(request);
  if (found == books.requests.end()) return;
  try {
    books.drain(request);
  } catch (...) {
    // Who ran in that step begins anew; what keeps failing is met by the next one.
  }
  ActiveRequest& active = found->second;
  const std::size_t choices = active.choices.size();
  for (std::size_t i = 0; i < choices; ++i) {
    Sequence* sequence = active.choices[i].get();
    if (sequence == nullptr) continue;
    books.emit_text(active, *sequence, sequence->end(FinishReason::cancelled));
    const bool last = active.unfinished == 1;
    books.finish(active, *sequence);
    if (last) break;
  }
  books.deliver();
}

bool Engine::step() {
  Books& books = *books_;
  require(!books.in_delivery && !books.in_run, "engine: step() is not called from inside a step");
  bool told = !books.events.empty();
  books.deliver();
  const std::int64_t failed = books.failed_steps;
  try {
    if (!books.run_step()) {
      told = told || !books.events.empty();
      books.deliver();
      return told;
    }
  } catch (const Error& error) {
    if (books.failed_steps == failed) throw;
    books.recover(error);
  }
  if (books.audits) audit();
  books.deliver();
  return true;
}

void Engine::carry_out_orders() { books_->carry_out_orders(); }
bool Engine::idle() const { return books_->unfinished == 0 && books_->events.empty(); }
std::int32_t Engine::running() const { return books_->scheduler.running(); }
std::int32_t Engine::waiting() const { return books_->unfinished - running(); }

EngineUsage Engine::usage() const {
  const SchedulerCounts& counts = books_->scheduler.counts();
  return {.pool = books_->pool.usage(),
          .prefixes = books_->prefixes.stats(),
          .cost = books_->prefixes.options().cost,
          .snapshots = books_->prefixes.tree().size(),
          .steps = books_->steps,
          .steps_ahead = books_->steps_ahead,
          .failed_steps = books_->failed_steps,
          .preemptions = counts.preemptions,
          .deferrals = counts.deferrals,
          .prefix_waits = counts.prefix_waits,
          .tier_waits = books_->waiter ? books_->waiter->waits() : 0};
}

PrefixCache& Engine::prefixes() {
  books_->drain();
  return books_->prefixes;
}

MemoryPool& Engine::pool() {
  books_->drain();
  return books_->pool;
}

SnapshotCarrier Engine::carrier() {
  Books* const books = books_.get();
  books->drain();
  return {books->pool, *books->runner, books->prefixes, books->capacity.vocab,
          [books] { books->carry_out_orders(); }};
}

void Engine::add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                      const TierOptions& options) {
  Books& books = *books_;
  require(books.tier == nullptr, "engine: there is one tier");
  books.tier = std::make_unique<SnapshotTier>(name, carrier(), std::move(storage), options);
  books.waiter.emplace(*books.tier, books.prefixes, books.scheduler);
  books.prefixes.on_evict([&books](std::span<const TokenId> key, const Snapshot& snapshot) {
    books.tier->spill(key, snapshot);
  });
}

SnapshotTier* Engine::tier() { return books_->tier.get(); }
void Engine::record(TraceRecorder* recorder) { books_->recorder = recorder; }

void Engine::audit() const {
  books_->scheduler.audit();
  std::size_t unfinished = 0, awaiting = 0;
  for (const auto& [id, active] : books_->requests) {
    require(active.unfinished > 0, "engine: a request without choices is gone");
    unfinished += active.unfinished;
    for (const auto& choice : active.choices) {
      if (choice != nullptr && choice->tier_lookup_state() == TierLookupState::awaited) ++awaiting;
    }
  }
  require(awaiting == (books_->waiter ? books_->waiter->waiting() : 0),
          "engine: the tier knows who waits for it, and nobody else");
  require(unfinished == static_cast<std::size_t>(books_->unfinished),
          "engine: unfinished choices are counted once");
  require(unfinished > 0 || books_->prefixes.tree().size() > 0 || books_->pool.all_free(),
          "engine: nobody is there, and yet memory is held");
}

Engine::Books::Books(Runner& runner_, const Tokenizer* tokenizer_, const EngineOptions& options)
    : runner(&runner_),
      tokenizer(tokenizer_),
      capacity((check_engine(runner_.capacity(), options), runner_.capacity())),
      length_asked(options.length_max),
      audits(options.audit),
      pool(capacity.memory),
      length_max(length_limit(pool, options.length_max)),
      prefixes(pool, options.prefixes),
      scheduler(pool, prefixes,
                {.sequences_max =
                     std::min({options.sequences_max, capacity.step_rows, capacity.step_tokens}),
                 .chunk_tokens = options.chunk_tokens,
                 .step_tokens = capacity.step_tokens,
                 .step_spans = capacity.step_spans,
                 .shared_tokens_min = options.shared_tokens_min,
                 .look_ahead = options.look_ahead}),
      now(options.now) {
  pool.set_backing([this](SuperblockId superblock, bool may_create) {
    return runner->back(superblock, may_create);
  });
  if (!options.measures_prefill) return;
  watch.emplace(options.prefixes.cost, options.chunk_tokens, length_max);
}

/// Before they look for what is known of their prompts.
void Engine::Books::receive_newcomers() {
  for (const RequestId id : std::exchange(newcomers, {})) {
    const auto request = requests.find(id);
    if (request == requests.end()) continue;
    Sequence* const first = request->second.choices.front().get();
    if (first != nullptr) draw_early(request->second, *first);
  }
}

/// Empty where there is nothing to do. When all that could run wait for the tier, so does this.
std::span<const Assignment> Engine::Books::plan() {
  receive_newcomers();
  if (waiter) waiter->look();
  std::span<const Assignment> assignments = scheduler.plan();
  while (assignments.empty() && waiter && waiter->is_awaited()) {
    waiter->wait();
    waiter->look();
    assignments = scheduler.plan();
  }
  return assignments;
}

/// The next step may run what the one that failed was to run; else the error is thrown. What can
/// never be held any more ends here.
void Engine::Books::recover(const Error& error) {
  if (!recovery.recover(pool, *runner, error)) throw with_holdings(error, *runner);
  length_max = length_limit(pool, length_max);
  std::vector<Sequence*> too_long;
  for (auto& [id, active] : requests) {
    active.terms.length_max = std::min(active.terms.length_max, length_max);
    for (const auto& choice : active.choices) {
      if (choice != nullptr && choice->tokens() >= length_max) too_long.push_back(choice.get());
    }
  }
  for (Sequence* const sequence : too_long) {
    ActiveRequest& active = requests.at(sequence->age().request);
    emit_text(active, *sequence,
        sequence->fail(fmt::format("memory: the device took back what {} tokens need; it has room "
                                   "for {} now; end what else uses it, or shorten the prompt",
                                   sequence->tokens(), length_max)));
    finish(active, *sequence);
  }
}

/// From logits that were kept. The sequence then starts behind its prompt, as one that was
/// preempted there.
void Engine::Books::draw_early(ActiveRequest& active, Sequence& sequence) {
  if (!sequence.keeps_logits()) return;
  const std::span<const float> logits = prefixes.logits(sequence.prompt());
  if (logits.empty()) return;
  const SampledToken sampled = runner->draw(logits, sequence.sample_row());
  if (!sampled.finite) return;
  const SnapshotSource source = prefixes.tree().neighborhood(sequence.prompt()).here->source;
  emit_text(active, sequence, sequence.accept_early(sampled, now(), source));
  if (sequence.finished()) finish(active, sequence);
}

void Engine::Books::keep_logits(Sequence& sequence, const StepResult& result, std::size_t row) {
  if (!sequence.keeps_logits() || !sequence.is_unanswered() || !result.sampled[row].finite) return;
  const std::size_t width = result.logits.size() / result.sampled.size();
  const auto vocab = static_cast<std::size_t>(capacity.vocab);
  require(width >= vocab, "engine: a runner that is asked for logits returns them");
  scheduler.keep_logits(sequence, std::span(result.logits).subspan(row * width, vocab));
}

/// One sequence's part, or piece, of a step that is done. `row`: where among the sampled ones its
/// own is, if there is one that it is to have.
void Engine::Books::apply_result(const Assignment& entry, const StepResult& result,
                                 std::optional<std::size_t> row, const StepTimes& times) {
  Sequence& sequence = *entry.sequence;
  sequence.ran(entry.tokens, times.begin);
  scheduler.ran(sequence);
  if (sequence.is_prefilled()) {
    sequence.end_prefill(times.end);
  } else if (row) {
    keep_logits(sequence, result, *row);
    std::string text = sequence.accept(result.sampled[*row], times.end);
    if (!text.empty()) emit_text(requests.at(sequence.age().request), sequence, std::move(text));
  }
  if (sequence.finished()) finish(requests.at(sequence.age().request), sequence);
}

void Engine::Books::emit_text(const ActiveRequest& active, const Sequence& sequence, std::string text) {
  if (text.empty()) return;
  events.push_back({.sink = active.sink,
                    .request = active.terms.id,
                    .choice = sequence.age().choice,
                    .text = std::move(text),
                    .completion = std::nullopt});
}

/// Neither the sequence nor, after its last choice, the request exists after this.
void Engine::Books::finish(ActiveRequest& active, Sequence& sequence) {
  const ArrivalOrder age = sequence.age();
  if (waiter) waiter->leave(sequence);
  Completion completion = sequence.take_completion();
  std::exception_ptr failure;
  try {
    completion.reason == FinishReason::error ? scheduler.remove(sequence)
                                             : scheduler.retire(sequence);
  } catch (...) {
    scheduler.remove(sequence);
    failure = std::current_exception();  // it could not leave a snapshot; its answer stands
  }
  if (recorder != nullptr && !active.terms.request.prefill_only) {
    recorder->ended(age.request, age.choice, completion.tokens);
  }
  events.push_back({.sink = active.sink,
                    .request = age.request,
                    .choice = age.choice,
                    .text = {},
                    .completion = std::move(completion)});
  active.choices[static_cast<std::size_t>(age.choice)].reset();
  --unfinished;
  if (--active.unfinished == 0) requests.erase(age.request);
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// A sink may submit, cancel or throw: an event leaves the queue before it is told.
void Engine::Books::deliver() {
  if (in_delivery) return;
  const Marked delivering(in_delivery);
  while (!events.empty()) {
    const Event event = std::move(events.front());
    events.pop_front();
    if (event.completion) {
      event.sink->on_finish(event.request, event.choice, *event.completion);
    } else {
      event.sink->on_text(event.request, event.choice, event.text);
    }
  }
}

/// False where there is nothing to do.
bool Engine::Books::run_step() {
  if (under_way.plan.empty()) {
    const std::span<const Assignment> planned = plan();
    if (planned.empty()) return false;
    launch(planned);
  }
  finish_step();
  return true;
}

/// The spans keep their buffers from step to step.
void Engine::Books::launch(std::span<const Assignment> plan) {
  step.spans.resize(plan.size());
  step.keep_logits = false;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Sequence& sequence = *plan[i].sequence;
    sequence.fill(step.spans[i], plan[i].tokens, plan[i].cuts);
    const bool draws_first = !step.spans[i].samples.empty() && sequence.is_unanswered();
    step.keep_logits = step.keep_logits || (draws_first && sequence.keeps_logits());
  }
  under_way = {.plan = plan, .begin = now()};
  begin();
}

/// Where steps do not run beside the host, this one runs in wait().
void Engine::Books::begin() {
  pool.take_orders(step.orders);
  ++steps;
  if (runner->runs_beside()) call_runner([&] { runner->launch(step); });
}

/// What the runner throws ends the step.
template <typename Call>
void Engine::Books::call_runner(const Call& call) {
  try {
    const Marked running(in_run);
    call();
  } catch (...) {
    under_way = {};
    fail();
    throw;
  }
}

/// A failed step leaves unknown bytes in what it was to write, and one that is not settled whole
/// leaves sequences that stand elsewhere than their states: nothing that holds memory is trusted.
void Engine::Books::fail() {
  ++failed_steps;
  scheduler.release_all();
}

/// The sequences of the step are as they were before it.
StepResult Engine::Books::wait() {
  std::size_t rows = 0;
  for (const Span& span : step.spans) rows += span.samples.size();
  StepResult result;
  call_runner([&] {
    result = runner->runs_beside() ? runner->wait() : runner->run(step);
    check_result(result, rows, capacity.vocab);
  });
  if (rows > 0) recovery.reset();
  return result;
}

/// The step that is under way, to its end. Then the next one may be under way.
void Engine::Books::finish_step() {
  const bool is_prepared = prepare_next();
  const StepResult result = wait();
  const StepUnderWay done = std::exchange(under_way, {});
  const StepTimes times = {.begin = done.begin, .end = now()};
  or_fail([&] {
    if (is_prepared && goes_on(done.plan, result)) {
      launch_next_and_apply(done.plan, result, times);
    } else {
      if (watch) learn_cost(times.end - times.begin);
      apply_results(done.plan, result, times, [](std::size_t) { return true; });
    }
  });
}

/// Of a step that ran: what goes wrong while it is settled leaves none under way.
template <typename Action>
void Engine::Books::or_fail(const Action& action) {
  try {
    action();
  } catch (...) {
    abandon();
    fail();
    throw;
  }
}

/// `step` has its spans, or those of the next, whose rows are the same.
template <typename Wanted>
void Engine::Books::apply_results(std::span<const Assignment> plan, const StepResult& result,
                                  const StepTimes& times, const Wanted& is_wanted) {
  std::size_t rows = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const bool is_sampled = !step.spans[i].samples.empty();
    const std::optional<std::size_t> row = is_sampled ? std::optional(rows++) : std::nullopt;
    if (is_wanted(i)) apply_result(plan[i], result, row, times);
  }
}

/// Those whose text may end them are told first; the others may be told while the next step runs.
void Engine::Books::launch_next_and_apply(std::span<const Assignment> plan,
                                          const StepResult& result, const StepTimes& times) {
  const std::int32_t unended = unfinished;
  apply_results(plan, result, times, [&](std::size_t i) { return stop_in_text[i]; });
  std::exception_ptr failure;
  if (unfinished == unended) failure = launch_next(plan);
  apply_results(plan, result, times, [&](std::size_t i) { return !stop_in_text[i]; });
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// Makes the step that may follow the one under way. False: it has to be planned.
bool Engine::Books::prepare_next() {
  const std::span<const Assignment> plan = under_way.plan;
  if (!runner->runs_beside() || step.keep_logits || (waiter && waiter->is_awaited())) return false;
  if (!newcomers.empty()) return false;  // one whose logits are known needs no step
  // Orders would ride in it, and it may never come.
  if (pool.has_orders() || !scheduler.foresees_next(plan) || pool.has_orders()) return false;
  next_step.orders.clear();
  next_step.keep_logits = false;
  next_step.spans.resize(plan.size());
  stop_in_text.resize(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    plan[i].sequence->fill_next(next_step.spans[i]);
    stop_in_text[i] = !plan[i].sequence->request().stop.empty();
  }
  try {
    const Marked running(in_run);
    runner->prepare(next_step);
  } catch (const std::exception&) {
    return false;  // nothing was touched: the launch after this step meets what is wrong
  }
  return true;
}

bool Engine::Books::goes_on(std::span<const Assignment> plan, const StepResult& result) const {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].sequence->goes_on_after(result.sampled[i])) return false;
  }
  return true;
}

/// The step before is not settled yet, so what goes wrong is returned.
std::exception_ptr Engine::Books::launch_next(std::span<const Assignment> plan) {
  std::swap(step, next_step);
  pool.pass_step();
  ++steps;
  ++steps_ahead;
  try {
    const Marked running(in_run);
    runner->launch_prepared();
  } catch (...) {
    return std::current_exception();
  }
  under_way = {.plan = plan, .begin = now()};
  return nullptr;
}

/// Afterwards no step is under way, and memory is what the books say. Only a step that was begun
/// early can be under way here: every sequence in it has drawn a token.
void Engine::Books::drain(std::optional<RequestId> cancelled) {
  if (under_way.plan.empty()) return;
  const StepResult result = wait();
  const StepUnderWay done = std::exchange(under_way, {});
  const StepTimes times = {.begin = done.begin, .end = now()};
  or_fail([&] {
    for (std::size_t i = 0; i < done.plan.size(); ++i) {
      const bool is_dropped = done.plan[i].sequence->age().request == cancelled;
      apply_result(done.plan[i], result, is_dropped ? std::nullopt : std::optional(i), times);
    }
  });
}

/// What the step under way drew is not wanted.
void Engine::Books::abandon() noexcept {
  if (under_way.plan.empty()) return;
  try {
    runner->wait();
  } catch (...) {
    // The step is over either way.
  }
  under_way = {};
}

void Engine::Books::carry_out_orders() {
  require(!in_run, "engine: a runner does not give orders");
  drain();
  if (!pool.has_orders()) return;
  step.spans.clear();
  step.keep_logits = false;
  begin();
  wait();
}

void Engine::Books::learn_cost(Clock::duration elapsed) {
  const std::optional<PrefillCost> cost = watch->ran(step, elapsed);
  if (!cost) return;
  prefixes.set_cost(*cost);
  if (tier != nullptr) tier->set_cost(*cost);
}

}  // namespace hyb
