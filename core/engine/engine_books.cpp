#include "core/engine/engine_books.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/marked.h"
#include "core/engine/engine_limits.h"
#include "core/engine/trace_recorder.h"

namespace hyb {

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
  if (desk) desk->look();
  std::span<const Assignment> assignments = scheduler.plan();
  while (assignments.empty() && desk && desk->is_awaited()) {
    desk->wait();
    desk->look();
    assignments = scheduler.plan();
  }
  return assignments;
}

/// The next step may run what the one that failed was to run; else the error is thrown. What can
/// never be held any more ends here.
void Engine::Books::relieve(const Error& error) {
  if (!relief.relieve(pool, *runner, error)) throw with_holdings(error, *runner);
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
    say(active, *sequence,
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

/// One sequence's part, or piece, of a step that is done. `row`: where among the sampled ones its
/// own is, if there is one that it is to have.
void Engine::Books::settle(const Assignment& entry, const StepResult& result,
                           std::optional<std::size_t> row, const StepTimes& times) {
  Sequence& sequence = *entry.sequence;
  sequence.ran(entry.tokens, times.begin);
  scheduler.ran(sequence);
  if (sequence.is_prefilled()) {
    sequence.end_prefill(times.end);
  } else if (row) {
    keep_logits(sequence, result, *row);
    std::string text = sequence.accept(result.sampled[*row], times.end);
    if (!text.empty()) say(requests.at(sequence.age().request), sequence, std::move(text));
  }
  if (sequence.finished()) finish(requests.at(sequence.age().request), sequence);
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

}  // namespace hyb
