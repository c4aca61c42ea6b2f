#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/engine/lanes.h"

namespace hyb {

/// The asynchronous runner of prompts (EngineOptions::prefill_lane), and the step that it has. What
/// the sequences of that step hold is pinned until it has ended: they are neither preempted nor
/// removed, and no order names their memory. Before this is destroyed the step has ended.
class PromptLane {
 public:
  /// All outlive this. Its sequences run on `side`. `speculation`: null where it is off.
  PromptLane(Runner& runner, Side& side, std::function<Clock::time_point()> now,
             Speculation* speculation);
  PromptLane(const PromptLane&) = delete;
  PromptLane& operator=(const PromptLane&) = delete;

  bool is_under_way() const { return !plan_.empty(); }
  bool is_done() { return is_under_way() && runner_->is_done(); }
  bool has(RequestId request) const;

  /// Launches a step; none is under way. What this or wait() throws ends it.
  void launch(std::span<const Assignment> plan, std::vector<Order> orders);
  /// The results of the step under way.
  FinishedStep wait();
  /// After either has thrown: the step that has failed.
  FailedStep failed(bool is_known) const;

  std::int64_t launched() const { return launched_; }  ///< steps

 private:
  void end();

  Runner* runner_;
  Side* side_;
  std::int32_t vocab_;
  std::function<Clock::time_point()> now_;
  Speculation* speculation_;
  Step step_;
  std::vector<Assignment> plan_;   ///< empty: no step is under way
  std::vector<Assignment> ended_;  ///< of the last one
  Clock::time_point begin_;
  std::int64_t launched_ = 0;
};

}  // namespace hyb
