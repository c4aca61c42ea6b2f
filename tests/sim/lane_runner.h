#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "tests/sim/late_runner.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim {

/// Bugs of two lanes, or of an engine that has them.
enum class LaneBug {
  none,
  waited_early,     ///< the last span is run only after its step was waited for
  orders_late,      ///< orders ahead of a prompt's step are carried out after it was launched
  failure_spreads,  ///< a step that fails writes rubbish where the other lane's step writes
  page_freed,       ///< another sequence may write what the last span writes, as if it were free
  page_moved,       ///< what the last span writes is elsewhere before it does, as if not pinned
  slot_early,       ///< the state that goes on is that before the last span
};

const char* name_of(LaneBug bug);

/// A toy that knows the step of the prefill lane: what steps of the other lane write meanwhile that
/// one does not name, and what they read it does not write.
class SharedRunner final : public ToyRunner {
 public:
  using ToyRunner::ToyRunner;
  StepResult run(const Step& step) override;
  std::vector<std::vector<SampledToken>> draft(const Step& step) override;
  /// A span of the prefill lane's step.
  StepResult run_beside(const Step& step) { return ToyRunner::run(step); }
  /// The same, but its state is lost.
  StepResult run_beside_stateless(const Step& step);
  /// Rubbish where the step writes.
  void overwrite(const Step& step) { spoil(step); }

  /// Null: that lane has nothing under way.
  void set_beside(const Step* step) { beside_ = step; }
  void plant(LaneBug bug) { lane_bug_ = bug; }

  std::int64_t steps_beside = 0;  ///< while the prefill lane had a step under way

 private:
  void check_beside(const Step& step) const;

  const Step* beside_ = nullptr;
  LaneBug lane_bug_ = LaneBug::none;
  std::vector<Order> orders_kept_;
};

/// The runner of the prefill lane, on the bytes of the other one: each span of a step is run at
/// some moment between launch() and the end of wait(), or fails then.
class LaneRunner final : public Runner {
 public:
  /// The runner that does the steps outlives this one.
  LaneRunner(SharedRunner& runner, std::uint64_t seed, LaneBug bug)
      : runner_(&runner), random_(seed), bug_(bug) {}

  Capacity capacity() const override { return runner_->capacity(); }
  bool is_async() const override { return true; }
  bool is_under_way() const { return step_.has_value(); }
  StepResult run(const Step& step) override;
  void launch(const Step& step) override;
  bool is_done() override;
  StepResult wait() override;
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;

  /// Amid the step under way, if there is one: some of its spans run, what others were to write is
  /// rubbish.
  void die();

  std::int64_t launched = 0, failed = 0;
  std::int64_t found_done = 0;  ///< before they were waited for

 private:
  void do_span();
  StepResult do_last_span(const Step& step);
  Step piece(std::size_t span) const;
  void do_forgotten();

  SharedRunner* runner_;
  Random random_;
  LaneBug bug_;
  std::optional<LateRunner::Kept> step_;
  std::optional<LateRunner::Kept> forgotten_;  ///< by LaneBug::waited_early
  std::optional<LateRunner::Kept> freed_;      ///< by LaneBug::page_freed
  std::size_t done_ = 0;                       ///< spans
  std::exception_ptr failure_;
  StepResult result_;
};

}  // namespace hyb::sim
