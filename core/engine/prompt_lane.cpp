#include "core/engine/prompt_lane.h"

#include <algorithm>
#include <utility>

namespace hyb {

PromptLane::PromptLane(Runner& runner, Side& side, std::function<Clock::time_point()> now,
                       Speculation* speculation)
    : runner_(&runner),
      side_(&side),
      vocab_(runner.capacity().vocab),
      now_(std::move(now)),
      speculation_(speculation) {}

bool PromptLane::has(RequestId request) const {
  return std::ranges::any_of(
      plan_, [&](const Assignment& entry) { return entry.sequence->age().request == request; });
}

void PromptLane::launch(std::span<const Assignment> plan, std::vector<Order> orders) {
  ended_.clear();
  step_.orders = std::move(orders);
  fill_step(step_, plan, speculation_);
  plan_.assign(plan.begin(), plan.end());
  begin_ = now_();
  for (const Assignment& entry : plan) {
    if (entry.sequence->is_under_way()) continue;  // a piece of it came before
    entry.sequence->set_under_way(true);
    side_->pool.pin(entry.sequence->memory());
  }
  ++launched_;
  try {
    runner_->launch(step_);
  } catch (...) {
    end();
    throw;
  }
}

FinishedStep PromptLane::wait() {
  StepResult result;
  try {
    result = runner_->wait();
    check_result(result, rows_of(step_), vocab_);
  } catch (...) {
    end();
    throw;
  }
  if (!result.sampled.empty()) side_->recovery.reset();
  end();
  return {.side = side_,
          .plan = ended_,
          .spans = step_.spans,
          .result = std::move(result),
          .times = {.begin = begin_, .end = now_()}};
}

FailedStep PromptLane::failed(bool is_known) const {
  return {.side = side_, .plan = ended_, .orders = step_.orders, .is_known = is_known};
}

void PromptLane::end() {
  for (const Assignment& entry : plan_) {
    if (!entry.sequence->is_under_way()) continue;
    entry.sequence->set_under_way(false);
    side_->pool.unpin(entry.sequence->memory());
  }
  ended_ = std::exchange(plan_, {});
}

}  // namespace hyb
