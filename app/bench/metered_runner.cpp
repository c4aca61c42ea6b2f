#include "app/bench/metered_runner.h"

#include <algorithm>

namespace hyb::app {

double StepTotals::bound_s(const Ceilings& ceilings) const {
  double seconds = 0;
  for (const models::Work& step : steps) {
    const double moving = ceilings.bytes_per_s > 0 ? step.bytes / ceilings.bytes_per_s : 0;
    const double computing = ceilings.flops_per_s > 0 ? step.flops / ceilings.flops_per_s : 0;
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

StepResult MeteredRunner::run(const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  StepResult result = runner_->run(step);
  totals_.inside += std::chrono::steady_clock::now() - begin;
  if (step.spans.empty()) return result;
  shapes_.clear();
  for (const Span& span : step.spans) {
    shapes_.push_back({.sequences = 1,
                       .tokens = std::ssize(span.tokens),
                       .position = span.position,
                       .rows = std::ssize(span.samples)});
  }
  totals_.steps.push_back(roofline_.step(shapes_));
  totals_.work += totals_.steps.back();
  return result;
}

}  // namespace hyb::app
