#include "core/engine/engine.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/engine_books.h"
#include "core/engine/engine_limits.h"
#include "core/engine/trace_recorder.h"

namespace hyb {

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
    books.land(request);
  } catch (...) {
    // Who ran in that step begins anew; what keeps failing is met by the next one.
  }
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
  const std::int64_t failed = books.failed_steps;
  try {
    if (!books.run_step()) {
      told = told || !books.events.empty();
      books.deliver();
      return told;
    }
  } catch (const Error& error) {
    if (books.failed_steps == failed) throw;
    books.relieve(error);
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
          .tier_waits = books_->desk ? books_->desk->waits() : 0};
}

PrefixCache& Engine::prefixes() {
  books_->land();
  return books_->prefixes;
}

MemoryPool& Engine::pool() {
  books_->land();
  return books_->pool;
}

SnapshotCarrier Engine::carrier() {
  Books* const books = books_.get();
  books->land();
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
