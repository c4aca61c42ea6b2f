#include "app/bench/metered_runner.h"

#include <algorithm>

namespace hyb::app {

Probes::Probes(kernels::Queue& queue, DType dtype, bool has_room) : queue_(&queue), dtype_(dtype) {
  queue.make_current();
  if (has_room) reader_.emplace(queue, read_bytes);
}

void Probes::run() {
  queue_->make_current();
  if (reader_) best_.bytes_per_s = std::max(best_.bytes_per_s, reader_->bytes_per_s());
  best_.flops_per_s = std::max(best_.flops_per_s, kernels::flops_per_s(*queue_, dtype_));
}

double StepTotals::bound_s(const Ceilings& ceilings) const {
  double seconds = 0;
  for (const MeteredStep& step : steps) {
    const auto& [bytes, flops] = step.work;
    const double moving = ceilings.bytes_per_s > 0 ? bytes / ceilings.bytes_per_s : 0;
    const double computing = ceilings.flops_per_s > 0 ? flops / ceilings.flops_per_s : 0;
    seconds += std::max(moving, computing);
  }
  return seconds;
}

StepTotals& StepTotals::operator+=(const StepTotals& more) {
  inside += more.inside;
  work += more.work;
  steps.insert(steps.end(), more.steps.begin(), more.steps.end());
  return *this;
}

/// Without the time that it takes.
MeteredStep MeteredRunner::metered(const Step& step) {
  MeteredStep metered;
  shapes_.clear();
  for (const Span& span : step.spans) {
    shapes_.push_back({.sequences = 1,
                       .tokens = std::ssize(span.tokens),
                       .position = span.position,
                       .rows = std::ssize(span.samples)});
    ++metered.spans;
    metered.tokens += std::ssize(span.tokens);
  }
  for (const Order& order : step.orders) {
    const auto* const change = std::get_if<ChangeOwner>(&order);
    if (change != nullptr && change->to != no_view) ++metered.flips;
  }
  if (metered.spans > 0) metered.work = roofline_.step(shapes_);
  return metered;
}

void MeteredRunner::add(MeteredStep step, std::chrono::nanoseconds taken) {
  totals_.inside += taken;
  if (step.spans == 0) return;
  step.seconds = std::chrono::duration<double>(taken).count();
  totals_.work += step.work;
  totals_.steps.push_back(step);
}

StepResult MeteredRunner::run(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  StepResult result = runner_->run(step);
  const auto taken = std::chrono::steady_clock::now() - begin;
  add(metered(step), taken);
  return result;
}

/// Takes time and is no work that a step has to do.
std::vector<std::vector<SampledToken>> MeteredRunner::draft(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::vector<SampledToken>> drafts = runner_->draft(step);
  totals_.inside += std::chrono::steady_clock::now() - begin;
  if (redraft_) redraft_(step, drafts);
  return drafts;
}

void MeteredRunner::launch(const Step& step) {
  RunningStep running = {.begin = {}, .step = metered(step)};
  running.begin = std::chrono::steady_clock::now();
  runner_->launch(step);
  running_.push_back(running);
}

void MeteredRunner::prepare(const Step& next) {
  runner_->prepare(next);
  next_ = metered(next);
}

void MeteredRunner::launch_prepared() {
  const auto begin = std::chrono::steady_clock::now();
  runner_->launch_prepared();
  running_.push_back({.begin = begin, .step = next_});
}

/// One that was launched while another ran begins where that ends.
StepResult MeteredRunner::wait() {
  const RunningStep running = running_.front();
  running_.erase(running_.begin());
  StepResult result = runner_->wait();
  const auto end = std::chrono::steady_clock::now();
  add(running.step, end - std::max(running.begin, last_end_));
  last_end_ = end;
  return result;
}

}  // namespace hyb::app
