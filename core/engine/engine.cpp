#include "core/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"

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

/// Sets a flag for as long as it lives.
class Marked {
 public:
  explicit Marked(bool& flag) : flag_(flag) { flag_ = true; }
  ~Marked() { flag_ = false; }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  bool& flag_;
};

void check(const Capacity& capacity, const EngineOptions& options) {
  require(capacity.step_tokens > 0 && capacity.step_rows > 0 && capacity.vocab > 0,
          "engine: a runner has room for one token, one row and a vocabulary");
  const auto refuse = [](std::string_view rule, std::int32_t value) {
    throw Error(ErrorKind::usage, fmt::format("engine: {}: {}", rule, value));
  };
  if (options.length_max < 2) refuse("the length limit is 2 tokens or more", options.length_max);
  if (options.sequences_max < 1) refuse("at least 1 sequence runs", options.sequences_max);
  if (options.chunk_tokens < 1) refuse("a chunk has at least 1 token", options.chunk_tokens);
}

std::int32_t length_limit(const MemoryPool& pool, const EngineOptions& options) {
  const auto fits = [&](std::int32_t length) {
    return pool.can_ever_hold(length, options.chunk_tokens);
  };
  if (!fits(2)) {
    throw Error(ErrorKind::memory, "engine: the memory holds less than 2 tokens; give more");
  }
  if (fits(options.length_max)) return options.length_max;
  // The longest that fits lies in [low, high).
  std::int32_t low = 2, high = options.length_max;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

struct Engine::Books {
  Books(Runner& runner_, const Tokenizer* tokenizer_, const EngineOptions& options)
      : runner(&runner_),
        tokenizer(tokenizer_),
        capacity((check(runner_.capacity(), options), runner_.capacity())),
        pool(capacity.memory),
        length_max(length_limit(pool, options)),
        scheduler(pool, {.sequences_max = std::min(
                             {options.sequences_max, capacity.step_rows, capacity.step_tokens}),
                         .chunk_tokens = options.chunk_tokens,
                         .step_tokens = capacity.step_tokens}) {}

  void run(std::span<const Assignment> plan);
  void settle(std::span<const Assignment> plan, const StepResult& result, Clock::time_point begin);
  void start_choices(ActiveRequest& active);
  void say(const ActiveRequest& active, const Sequence& sequence, std::string text);
  void finish(ActiveRequest& active, Sequence& sequence);
  void deliver();

  Runner* runner;
  const Tokenizer* tokenizer;
  Capacity capacity;
  MemoryPool pool;
  std::int32_t length_max;
  std::map<RequestId, ActiveRequest> requests;
  Scheduler scheduler;
  std::deque<Event> events;
  Step step;
  std::int64_t submitted = 0;
  std::int32_t unfinished = 0;
  bool in_run = false;
  bool in_delivery = false;
};

/// A failed step leaves unknown bytes in what it was to write, so nothing that holds memory is
/// trusted after it.
void Engine::Books::run(std::span<const Assignment> plan) {
  const Clock::time_point begin = Clock::now();
  step.orders = pool.take_orders();
  step.spans.clear();
  std::size_t rows = 0;
  for (const Assignment& entry : plan) {
    step.spans.push_back(entry.sequence->span(entry.tokens));
    rows += step.spans.back().samples.size();
  }
  StepResult result;
  try {
    const Marked running(in_run);
    result = runner->run(step);
    require(result.sampled.size() == rows, "engine: the runner answers every row");
    for (const SampledToken& sampled : result.sampled) {
      require(
          !sampled.finite || (index(sampled.token) >= 0 && index(sampled.token) < capacity.vocab),
          "engine: the runner draws from the vocabulary");
    }
  } catch (...) {
    scheduler.release_all();
    pool.repeat_owners();
    throw;
  }
  settle(plan, result, begin);
}

void Engine::Books::settle(std::span<const Assignment> plan, const StepResult& result,
                           Clock::time_point begin) {
  const Clock::time_point end = Clock::now();
  std::size_t row = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Sequence& sequence = *plan[i].sequence;
    ActiveRequest& active = requests.at(sequence.age().request);
    sequence.ran(plan[i].tokens, begin);
    if (sequence.at_prompt_end()) start_choices(active);
    if (step.spans[i].samples.empty()) continue;
    say(active, sequence, sequence.accept(result.sampled[row++], end));
    if (sequence.finished()) finish(active, sequence);
  }
}

/// The first choice has run the prompt but for its last token: the others go on from there.
void Engine::Books::start_choices(ActiveRequest& active) {
  Sequence& leader = *active.choices.front();
  leader.go_on();
  scheduler.share(leader);
  for (std::size_t i = 1; i < active.choices.size(); ++i) scheduler.add(*active.choices[i]);
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
  events.push_back({.sink = active.sink,
                    .request = age.request,
                    .choice = age.choice,
                    .text = {},
                    .completion = sequence.take_completion()});
  scheduler.remove(sequence);
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
                  .submitted = Clock::now()};
  active.sink = &sink;
  const std::int32_t choices = active.terms.request.choices;
  for (std::int32_t choice = 0; choice < choices; ++choice) {
    active.choices.push_back(std::make_unique<Sequence>(active.terms, choice));
  }
  active.unfinished = active.choices.size();
  books.unfinished += choices;

  // A prompt is run once for all choices, unless there is nothing to share.
  const bool shares = choices > 1 && active.terms.request.prompt.size() > 1;
  active.terms.request.prompt = {};  // every choice has its own by now
  if (shares) active.choices.front()->hold_at_prompt_end();
  for (std::int32_t choice = 0; choice < (shares ? 1 : choices); ++choice) {
    books.scheduler.add(*active.choices[static_cast<std::size_t>(choice)]);
  }
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
  const bool told = !books.events.empty();
  books.deliver();
  const std::span<const Assignment> plan = books.scheduler.plan();
  if (plan.empty()) return told;
  books.run(plan);
  books.deliver();
  return true;
}

bool Engine::idle() const { return books_->unfinished == 0 && books_->events.empty(); }

std::int32_t Engine::running() const { return books_->scheduler.running(); }

std::int32_t Engine::waiting() const { return books_->unfinished - running(); }

void Engine::audit() const {
  books_->scheduler.audit();
  std::size_t unfinished = 0;
  for (const auto& [id, active] : books_->requests) {
    require(active.unfinished > 0, "engine: a request without choices is gone");
    unfinished += active.unfinished;
  }
  require(unfinished == static_cast<std::size_t>(books_->unfinished),
          "engine: unfinished choices are counted once");
  require(unfinished > 0 || books_->pool.all_free(),
          "engine: nobody is there, and yet memory is held");
}

}  // namespace hyb
