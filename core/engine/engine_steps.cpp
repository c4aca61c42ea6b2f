// How one step follows another.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/marked.h"
#include "core/engine/engine_books.h"
#include "core/engine/engine_limits.h"

namespace hyb {

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
  if (rows > 0) relief.get_on();
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
      launch_next_and_settle(done.plan, result, times);
    } else {
      if (watch) learn_cost(times.end - times.begin);
      settle_those(done.plan, result, times, [](std::size_t) { return true; });
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
void Engine::Books::settle_those(std::span<const Assignment> plan, const StepResult& result,
                                 const StepTimes& times, const Wanted& is_wanted) {
  std::size_t rows = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const bool is_sampled = !step.spans[i].samples.empty();
    const std::optional<std::size_t> row = is_sampled ? std::optional(rows++) : std::nullopt;
    if (is_wanted(i)) settle(plan[i], result, row, times);
  }
}

/// Those whose text may end them are told first; the others may be told while the next step runs.
void Engine::Books::launch_next_and_settle(std::span<const Assignment> plan,
                                           const StepResult& result, const StepTimes& times) {
  const std::int32_t unended = unfinished;
  settle_those(plan, result, times, [&](std::size_t i) { return stop_in_text[i]; });
  std::exception_ptr failure;
  if (unfinished == unended) failure = launch_next(plan);
  settle_those(plan, result, times, [&](std::size_t i) { return !stop_in_text[i]; });
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// Makes the step that may follow the one under way. False: it has to be planned.
bool Engine::Books::prepare_next() {
  const std::span<const Assignment> plan = under_way.plan;
  if (!runner->runs_beside() || step.keep_logits || (desk && desk->is_awaited())) return false;
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
void Engine::Books::land(std::optional<RequestId> cancelled) {
  if (under_way.plan.empty()) return;
  const StepResult result = wait();
  const StepUnderWay done = std::exchange(under_way, {});
  const StepTimes times = {.begin = done.begin, .end = now()};
  or_fail([&] {
    for (std::size_t i = 0; i < done.plan.size(); ++i) {
      const bool is_dropped = done.plan[i].sequence->age().request == cancelled;
      settle(done.plan[i], result, is_dropped ? std::nullopt : std::optional(i), times);
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
  land();
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
