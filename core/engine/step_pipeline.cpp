#include "core/engine/step_pipeline.h"

#include <algorithm>
#include <utility>

namespace hyb {
namespace {

bool has_ended(const Assignment& entry) { return entry.sequence == nullptr; }

bool awaits_text(const Assignment& entry) { return has_stop_strings(*entry.sequence); }

}  // namespace

StepPipeline::StepPipeline(Side& side, std::function<Clock::time_point()> now, OnFailure on_failure)
    : side_(&side),
      runner_(side.runner),
      vocab_(runner_->capacity().vocab),
      now_(std::move(now)),
      on_failure_(std::move(on_failure)) {}

void StepPipeline::launch(std::span<const Assignment> plan, Speculation* speculation) {
  is_prepared_ = false;
  side_->starts(!fill_step(step_, plan, speculation));
  set_running(plan);
  start();
}

void StepPipeline::set_running(std::span<const Assignment> plan) {
  running_.assign(plan.begin(), plan.end());
  begin_ = now_();
}

void StepPipeline::start() {
  side_->pool.take_orders(step_.orders);
  ++steps_;
  if (!runner_->is_async()) return;
  call_runner([&] { runner_->launch(step_); }, step_.orders);
  ++launched_;
}

bool StepPipeline::may_run_ahead() const {
  return runner_->is_async() && std::ranges::none_of(running_, has_ended);
}

void StepPipeline::run_ahead() {
  is_prepared_ = prepare_next();
  if (is_prepared_ && std::ranges::none_of(running_, awaits_text)) launch_next(running_);
}

bool StepPipeline::prepare_next() {
  // Orders would ride in a step that may never be launched.
  if (!side_->pool.orders().empty() || !side_->scheduler.predicts_next(running_) ||
      !side_->pool.orders().empty()) {
    return false;
  }
  next_step_.orders.clear();
  next_step_.draft_entries = step_.draft_entries;
  next_step_.spans.resize(running_.size());
  for (std::size_t i = 0; i < running_.size(); ++i) {
    running_[i].sequence->fill_next(next_step_.spans[i]);
  }
  try {
    runner_->prepare(next_step_);
  } catch (const std::exception&) {
    return false;  // nothing has changed: the next launch fails with the same error
  }
  return true;
}

/// Results of the running step, or of the one before, are not applied yet, so an error is kept, not
/// thrown.
void StepPipeline::launch_next(std::span<const Assignment> plan) {
  is_prepared_ = false;
  std::swap(step_, next_step_);
  side_->pool.take_orders(step_.orders);
  require(step_.orders.empty(), "engine: a step that was prepared has no orders");
  ++steps_;
  ++steps_ahead_;
  try {
    runner_->launch_prepared();
  } catch (...) {
    is_launch_lost_ = true;
    next_failure_ = std::current_exception();
    return;
  }
  ++launched_;
  if (plan.data() != running_.data()) set_running(plan);
}

/// Ends the step, which has these orders, if the runner throws.
template <typename Call>
void StepPipeline::call_runner(const Call& call, std::span<const Order> orders) {
  try {
    call();
  } catch (...) {
    fail(running_, orders, std::current_exception());
    throw;
  }
}

/// The sequences of the step are as they were before it.
StepResult StepPipeline::take_result() {
  StepResult result;
  // A step that is launched ahead, or was to be, has no orders.
  std::vector<Order>& orders = step_.orders.empty() ? next_step_.orders : step_.orders;
  call_runner(
      [&] {
        result = launched_ > 0 ? (--launched_, runner_->wait()) : runner_->run(step_);
        check_result(result, rows_of(step_), vocab_);
      },
      orders);
  orders.clear();  // they were carried out, whatever becomes of the results
  if (!result.sampled.empty()) side_->recovery.reset();
  return result;
}

FinishedStep StepPipeline::wait() {
  const bool has_next = launched_ > 1;
  StepResult result = take_result();
  done_.assign(running_.begin(), running_.end());
  FinishedStep done = {.side = side_,
                       .plan = done_,
                       .spans = step_.spans,  // those of the next one have the same rows
                       .result = std::move(result),
                       .times = {.begin = begin_, .end = now_()}};
  if (has_next) {
    begin_ = done.times.end;
  } else {
    running_.clear();
  }
  return done;
}

bool StepPipeline::is_text_awaited(const FinishedStep& done) const {
  if (!is_prepared_) return false;
  for (std::size_t i = 0; i < done_.size(); ++i) {
    const SampledToken& sampled = done.result.sampled[i];
    if (!sampled.finite || done_[i].sequence->request().ends_at(sampled.token)) return false;
  }
  return true;
}

void StepPipeline::leave(const Sequence& sequence) {
  for (std::vector<Assignment>* const plan : {&running_, &done_}) {
    for (Assignment& entry : *plan) {
      if (entry.sequence == &sequence) entry.sequence = nullptr;
    }
  }
}

std::vector<std::vector<SampledToken>> StepPipeline::draft(Step& step) {
  side_->pool.take_orders(step.orders);
  std::vector<std::vector<SampledToken>> drafts;
  call_runner([&] { drafts = runner_->draft(step); }, step.orders);
  return drafts;
}

void StepPipeline::carry_out_orders() {
  if (side_->pool.orders().empty()) return;
  Step step;
  side_->pool.take_orders(step.orders);
  ++steps_;
  call_runner(
      [&] {
        if (!runner_->is_async()) return runner_->run(step);
        runner_->launch(step);
        return runner_->wait();
      },
      step.orders);
}

/// A failed step leaves unknown bytes where it and its orders were to write, and a step whose
/// results were applied in part leaves sequences and states at different lengths. Where another
/// step is running, or what ended while this one ran was written by it, no memory is trusted, nor
/// where the device lacks some: what is ordered again takes no memory then.
void StepPipeline::fail(std::span<const Assignment> plan, std::span<const Order> orders,
                        const std::exception_ptr& error) {
  const bool is_alone = !std::exchange(is_launch_lost_, false) && launched_ == 0;
  const bool is_known =
      is_alone && std::ranges::none_of(running_, has_ended) && !lacks_memory(error);
  const std::vector<Assignment> failed(plan.begin(), plan.end());
  abandon();
  on_failure_({.side = side_, .plan = failed, .orders = orders, .is_known = is_known});
  step_.orders.clear();
  next_step_.orders.clear();
}

void StepPipeline::abandon() noexcept {
  running_.clear();
  is_prepared_ = false;
  next_failure_ = nullptr;
  for (; launched_ > 0; --launched_) {
    try {
      runner_->wait();
    } catch (...) {
      // The step has ended either way.
    }
  }
}

}  // namespace hyb
