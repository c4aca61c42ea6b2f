#include "core/engine/engine.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/marked.h"
#include "core/engine/engine_limits.h"
#include "core/engine/prefill_watch.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"
#include "core/engine/tier_desk.h"
#include "core/engine/trace_recorder.h"
#include "core/memory/snapshot_tier.h"

namespace hyb {
namespace {

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

}  // namespace

struct Engine::Books {
  Books(Runner& runner_, const Tokenizer* tokenizer_, const EngineOptions& options)
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
                   .shared_tokens_min = options.shared_tokens_min,
                   .look_ahead = options.look_ahead}),
        now(options.now) {
    if (!options.measures_prefill) return;
    watch.emplace(options.prefixes.cost, options.chunk_tokens, length_max);
  }

  void run(std::span<const Assignment> plan);
  StepResult call_runner(std::size_t rows);
  void learn_cost(Clock::duration elapsed);
  void carry_out_orders();
  void receive_newcomers();
  void draw_early(ActiveRequest& active, Sequence& sequence);
  void keep_logits(Sequence& sequence, const StepResult& result, std::size_t row);
  std::span<const Assignment> plan();
  void settle(std::span<const Assignment> plan, const StepResult& result, Clock::time_point begin);
  void say(const ActiveRequest& active, const Sequence& sequence, std::string text);
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
  std::optional<TierDesk> desk;  ///< there is one where there is a tier
  std::deque<Event> events;
  Step step;
  std::function<Clock::time_point()> now;
  std::optional<PrefillWatch> watch;  ///< none: prefill costs what it was said to cost
  TraceRecorder* recorder = nullptr;
  std::int64_t submitted = 0;
  std::int64_t steps = 0, failed_steps = 0;
  std::int32_t unfinished = 0;
  bool in_run = false;
  bool in_delivery = false;
};

/// The spans keep their buffers from step to step.
void Engine::Books::run(std::span<const Assignment> plan) {
  const Clock::time_point begin = now();
  step.spans.resize(plan.size());
  std::size_t rows = 0;
  step.keep_logits = false;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Sequence& sequence = *plan[i].sequence;
    sequence.fill(step.spans[i], plan[i].tokens);
    rows += step.spans[i].samples.size();
    const bool draws_first = !step.spans[i].samples.empty() && sequence.is_unanswered();
    step.keep_logits = step.keep_logits || (draws_first && sequence.keeps_logits());
  }
  const StepResult result = call_runner(rows);
  if (watch) learn_cost(now() - begin);
  settle(plan, result, begin);
}

void Engine::Books::learn_cost(Clock::duration elapsed) {
  const std::optional<PrefillCost> cost = watch->ran(step, elapsed);
  if (!cost) return;
  prefixes.set_cost(*cost);
  if (tier != nullptr) tier->set_cost(*cost);
}

/// A failed step leaves unknown bytes in what it was to write, so nothing that holds memory is
/// trusted after it.
StepResult Engine::Books::call_runner(std::size_t rows) {
  pool.take_orders(step.orders);
  ++steps;
  try {
    const Marked running(in_run);
    StepResult result = runner->run(step);
    require(result.sampled.size() == rows, "engine: the runner answers every row");
    for (const SampledToken& sampled : result.sampled) {
      require(
          !sampled.finite || (index(sampled.token) >= 0 && index(sampled.token) < capacity.vocab),
          "engine: the runner draws from the vocabulary");
    }
    return result;
  } catch (...) {
    ++failed_steps;
    scheduler.release_all();
    throw;
  }
}

void Engine::Books::carry_out_orders() {
  require(!in_run, "engine: a runner does not give orders");
  if (!pool.has_orders()) return;
  step.spans.clear();
  call_runner(0);
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
  if (desk) desk->look();
  std::span<const Assignment> assignments = scheduler.plan();
  while (assignments.empty() && desk && desk->is_awaited()) {
    desk->wait();
    desk->look();
    assignments = scheduler.plan();
  }
  return assignments;
}

/// From logits that were kept. The sequence then starts behind its prompt, as one that was
/// preempted there.
void Engine::Books::draw_early(ActiveRequest& active, Sequence& sequence) {
  if (!sequence.keeps_logits()) return;
  const std::span<const float> logits = prefixes.logits(sequence.prompt());
  if (logits.empty()) return;
  const SampledToken sampled = runner->draw(logits, sequence.sample_row());
  if (!sampled.finite) return;
  const SnapshotSource source = prefixes.tree().standing(sequence.prompt()).here->source;
  say(active, sequence, sequence.accept_early(sampled, now(), source));
  if (sequence.finished()) finish(active, sequence);
}

void Engine::Books::keep_logits(Sequence& sequence, const StepResult& result, std::size_t row) {
  if (!sequence.keeps_logits() || !sequence.is_unanswered() || !result.sampled[row].finite) return;
  const std::size_t width = result.logits.size() / result.sampled.size();
  const auto vocab = static_cast<std::size_t>(capacity.vocab);
  require(width >= vocab, "engine: a runner that is asked for logits returns them");
  scheduler.keep_logits(sequence, std::span(result.logits).subspan(row * width, vocab));
}

void Engine::Books::settle(std::span<const Assignment> plan, const StepResult& result,
                           Clock::time_point begin) {
  const Clock::time_point end = now();
  std::size_t row = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Sequence& sequence = *plan[i].sequence;
    sequence.ran(plan[i].tokens, begin);
    scheduler.ran(sequence);
    if (sequence.is_prefilled()) {
      sequence.end_prefill(end);
    } else if (!step.spans[i].samples.empty()) {
      keep_logits(sequence, result, row);
      std::string text = sequence.accept(result.sampled[row++], end);
      if (!text.empty()) say(requests.at(sequence.age().request), sequence, std::move(text));
    }
    if (sequence.finished()) finish(requests.at(sequence.age().request), sequence);
  }
}

void Engine::Books::say(const ActiveRequest& active, const Sequence& sequence, std::string text) {
  if (text.empty()) return;
  events.push_back({.sink = active.sink,
                    .request = active.terms.id,
                    .choice = sequence.age().choice,
                    .text = std::move(text),
                    .completion = std::nullopt});
}

/// Neither the sequence nor, after its last choice, the request exists after this.
void Engine::Books::finish(ActiveRequest& active, Sequence& sequence) {
  const Age age = sequence.age();
  if (desk) desk->leave(sequence);
  Completion completion = sequence.take_completion();
  if (completion.reason == FinishReason::error) {
    scheduler.remove(sequence);
  } else {
    scheduler.retire(sequence);
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

Engine::Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options)
    : books_(std::make_unique<Books>(runner, tokenizer, options)) {}

Engine::~Engine() = default;
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
  ActiveRequest& active = found->second;
  const std::size_t choices = active.choices.size();
  for (std::size_t i = 0; i < choices; ++i) {
    Sequence* sequence = active.choices[i].get();
    if (sequence == nullptr) continue;
    books.say(active, *sequence, sequence->end(FinishReason::cancelled));
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
  const std::span<const Assignment> plan = books.plan();
  if (plan.empty()) {
    told = told || !books.events.empty();
    books.deliver();
    return told;
  }
  books.run(plan);
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
          .failed_steps = books_->failed_steps,
          .preemptions = counts.preemptions,
          .deferrals = counts.deferrals,
          .prefix_waits = counts.prefix_waits,
          .tier_waits = books_->desk ? books_->desk->waits() : 0};
}

PrefixCache& Engine::prefixes() { return books_->prefixes; }
MemoryPool& Engine::pool() { return books_->pool; }

SnapshotCarrier Engine::carrier() {
  Books* const books = books_.get();
  return {books->pool, *books->runner, books->prefixes, [books] { books->carry_out_orders(); }};
}

void Engine::add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                      const TierOptions& options) {
  Books& books = *books_;
  require(books.tier == nullptr, "engine: there is one tier");
  books.tier = std::make_unique<SnapshotTier>(name, carrier(), std::move(storage), options);
  books.desk.emplace(*books.tier, books.prefixes, books.scheduler);
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
      if (choice != nullptr && choice->tier_look() == TierLook::awaited) ++awaiting;
    }
  }
  require(awaiting == (books_->desk ? books_->desk->waiting() : 0),
          "engine: the tier knows who waits for it, and nobody else");
  require(unfinished == static_cast<std::size_t>(books_->unfinished),
          "engine: unfinished choices are counted once");
  require(unfinished > 0 || books_->prefixes.tree().size() > 0 || books_->pool.all_free(),
          "engine: nobody is there, and yet memory is held");
}

}  // namespace hyb
