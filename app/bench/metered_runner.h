#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/engine/runner.h"
#include "kernels/probe.h"
#include "models/roofline.h"

namespace hyb::app {

/// Limits of the machine, measured in the same minutes: the best of several passes.
struct Ceilings {
  double bytes_per_s = 0;  ///< 0: there was no room for the read probe
  double flops_per_s = 0;
};

/// The probes of kernels/probe.h, to be run between the repetitions of a measurement.
class Probes {
 public:
  static constexpr std::size_t read_bytes = std::size_t{1} << 30;

  /// FLOPs are those of products of `dtype`. Without room for `read_bytes` nothing is read.
  Probes(kernels::Queue& queue, DType dtype, bool has_room);

  void forget() { best_ = {}; }
  void run();
  const Ceilings& best() const { return best_; }

 private:
  kernels::Queue* queue_;
  DType dtype_;
  std::optional<kernels::ReadProbe> reader_;
  Ceilings best_;
};

/// A step that ran tokens.
struct MeteredStep {
  models::Work work;        ///< the least that it had to move and compute
  double seconds = 0;       ///< from its begin to its end
  std::int32_t spans = 0;   ///< of one sequence each, as long as nothing is cut
  std::int64_t tokens = 0;  ///< of all spans
  std::int32_t flips = 0;   ///< superblocks that got another owner, or their first one, before it
};

/// Work of a runner since the meter was reset.
struct StepTotals {
  std::chrono::nanoseconds inside{0};  ///< from a step's begin to its end, and of drafts for it
  models::Work work;                   ///< the least that these steps had to move and compute
  std::vector<MeteredStep> steps;

  /// The least time that they could take under these ceilings; a ceiling of 0 is none.
  double bound_s(const Ceilings& ceilings) const;

  StepTotals& operator+=(const StepTotals& more);
};

/// Passes all on to another runner and adds up what its steps come to.
class MeteredRunner final : public Runner {
 public:
  /// `runner` outlives this.
  MeteredRunner(Runner& runner, models::Roofline roofline)
      : runner_(&runner), roofline_(std::move(roofline)) {}

  /// Replaces the drafts of the step's spans.
  using Redraft =
      std::function<void(const Step& step, std::vector<std::vector<SampledToken>>& drafts)>;
  /// From now on; empty: nothing.
  void redraft(Redraft redraft) { redraft_ = std::move(redraft); }

  /// Totals since the call before; from now on they begin at zero.
  StepTotals take_totals() { return std::exchange(totals_, {}); }

  Capacity capacity() const override { return runner_->capacity(); }
  StepResult run(const Step& step) override;
  bool is_async() const override { return runner_->is_async(); }
  void launch(const Step& step) override;
  void prepare(const Step& next) override;
  void launch_prepared() override;
  StepResult wait() override;
  bool can_draft() const override { return runner_->can_draft(); }
  std::vector<std::vector<SampledToken>> draft(const Step& step) override;
  bool commit(SuperblockId superblock, bool may_create) override {
    return runner_->commit(superblock, may_create);
  }
  void release_caches() override { runner_->release_caches(); }
  std::string holdings() const override { return runner_->holdings(); }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    runner_->read(view, unit, bytes);
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    runner_->write(view, unit, bytes);
  }
  std::unique_ptr<PendingBytes> start_read(ViewId view, std::int32_t unit) override {
    return runner_->start_read(view, unit);
  }
  bool can_stage_writes() const override { return runner_->can_stage_writes(); }
  std::unique_ptr<StagedWrite> stage_write(std::size_t bytes) override {
    return runner_->stage_write(bytes);
  }

 private:
  MeteredStep metered(const Step& step);
  void add(MeteredStep step, std::chrono::nanoseconds taken);

  Runner* runner_;
  Redraft redraft_;
  models::Roofline roofline_;
  StepTotals totals_;
  std::vector<models::StepShape> shapes_;
  struct RunningStep {
    std::chrono::steady_clock::time_point begin;
    MeteredStep step;
  };
  std::vector<RunningStep> running_;  ///< the oldest first
  std::chrono::steady_clock::time_point last_end_;
  MeteredStep next_;  ///< that was prepared
};

}  // namespace hyb::app
