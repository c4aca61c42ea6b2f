#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "core/engine/side.h"
#include "core/engine/steps.h"

namespace hyb {

/// The steps of the engine's own runner: a plan goes in, results come out, and between the two the
/// next step may have been launched.
///
/// A step is launched, waited for, and applied by the caller. On an asynchronous runner the one
/// after it may be launched while it runs, or while it is applied: it has the same sequences, with
/// the one token each that the running step draws, which is on the device before the host sees it.
/// So the device never waits for the host. A sequence that ends meanwhile has run its last token in
/// that step: what that draws for it is dropped. Where a sequence has stop strings its text decides
/// whether there is a next step, so that is prepared, but launched when the tokens were looked at.
///
/// Whatever the runner throws, and what the caller throws while it applies results, ends all steps:
/// `on_failure` is called once, before it is passed on.
class StepPipeline {
 public:
  using OnFailure = std::function<void(const FailedStep&)>;

  /// The side outlives this.
  StepPipeline(Side& side, std::function<Clock::time_point()> now, OnFailure on_failure);
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  bool is_running() const { return !running_.empty(); }
  /// When the running step was launched.
  Clock::time_point begin() const { return begin_; }

  /// Launches a step; none is running. On a synchronous runner it runs in wait().
  void launch(std::span<const Assignment> plan, Speculation* speculation);

  /// While a step runs: whether the next one may be launched ahead, as far as this step says.
  bool may_run_ahead() const;
  std::span<const Assignment> running() const { return running_; }
  /// Prepares the next step, where it can be foreseen, and launches it where no text decides. An
  /// error of the launch is thrown by apply().
  void run_ahead();

  /// The results of the running step, which are to be applied next.
  FinishedStep wait();
  /// Returns whether the next step is prepared and only text may end a sequence of this one: those
  /// with stop strings are to be applied first, then launch_prepared() called, unless one has
  /// ended.
  bool is_text_awaited(const FinishedStep& done) const;
  void launch_prepared() { launch_next(done_); }

  /// Applies the results of wait().
  template <typename Action>
  void apply(const Action& action) {
    try {
      action();
      if (next_failure_ != nullptr) std::rethrow_exception(std::exchange(next_failure_, nullptr));
    } catch (...) {
      fail(done_, {}, std::current_exception());
      throw;
    }
  }

  /// The sequence has ended: what is drawn for it is dropped.
  void leave(const Sequence& sequence);

  /// Runner::draft, before the step that verifies the drafts.
  std::vector<std::vector<SampledToken>> draft(Step& step);
  /// Between steps: a step without spans, where there are open orders.
  void carry_out_orders();

  /// Waits for what runs, and drops it.
  void abandon() noexcept;

  std::int64_t steps() const { return steps_; }              ///< given to the runner
  std::int64_t steps_ahead() const { return steps_ahead_; }  ///< of these, launched ahead

 private:
  void start();
  void set_running(std::span<const Assignment> plan);
  bool prepare_next();
  void launch_next(std::span<const Assignment> plan);
  StepResult take_result();
  template <typename Call>
  void call_runner(const Call& call, std::span<const Order> orders);
  void fail(std::span<const Assignment> plan, std::span<const Order> orders,
            const std::exception_ptr& error);

  Side* side_;
  Runner* runner_;
  std::int32_t vocab_;
  std::function<Clock::time_point()> now_;
  OnFailure on_failure_;
  Step step_;                        ///< the runner's last one
  Step next_step_;                   ///< the one it may get after that, or had before
  std::vector<Assignment> running_;  ///< empty: no step is running
  std::vector<Assignment> done_;     ///< of the step that wait() returned
  Clock::time_point begin_;
  int launched_ = 0;  ///< steps that an asynchronous runner has
  bool is_prepared_ = false;
  bool is_launch_lost_ = false;      ///< of a step that was to be launched ahead
  std::exception_ptr next_failure_;  ///< why it was lost
  std::int64_t steps_ = 0, steps_ahead_ = 0;
};

}  // namespace hyb
