#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/engine/runner.h"
#include "core/workers/worker.h"

namespace hyb {

/// Says how long a worker may need, and how often it may end.
struct WorkerLimits {
  std::chrono::milliseconds silence{20'000};  ///< between signs of life, while it is busy
  /// A step may take this many times what the slowest one before took per token, and at least
  /// `step_least`. Before one has finished only silence counts.
  double step_factor = 20;
  std::chrono::milliseconds step_least{60'000};
  int deaths_in_a_row = 5;  ///< before one has finished a step: then there is an error
};

/// A Runner whose steps run in another process, on the same bytes: for a prefill lane
/// (EngineOptions::prefill_lane). A worker that ends, hangs or says what is no message is ended for
/// good and replaced by the next launch(); wait() then throws StepLost.
class RemoteRunner final : public Runner {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts a worker and waits until it is ready. `capacity` is what workers are made with, and
  /// `identity` what they have to say. Throws what keeps one from being ready: Error(runtime)
  /// where it is another one than was expected, or where several end at once; its own error.
  RemoteRunner(StartWorker start, const Capacity& capacity, WorkerIdentity identity,
               const WorkerLimits& limits = {},
               std::function<Clock::time_point()> now = Clock::now);
  /// Ends the worker, also amid a step.
  ~RemoteRunner() override;
  RemoteRunner(const RemoteRunner&) = delete;
  RemoteRunner& operator=(const RemoteRunner&) = delete;

  Capacity capacity() const override { return capacity_; }
  StepResult run(const Step& step) override;
  bool is_async() const override { return true; }
  bool is_done() override;
  /// Throws as the constructor.
  void launch(const Step& step) override;
  /// Throws what the step threw, StepLost, or Error(runtime) after too many deaths in a row.
  StepResult wait() override;
  /// The engine's own runner has the bytes: these throw.
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;

  std::int64_t deaths() const { return deaths_; }  ///< of workers, so far

 private:
  void start_worker();
  bool greet();
  void lose(const std::string& what);
  void look(std::chrono::milliseconds patience);
  void take(const Message& message);
  std::string why_it_hangs() const;
  std::optional<std::chrono::duration<double>> step_limit() const;
  bool has_outcome() const { return result_.has_value() || failure_ != nullptr; }

  StartWorker start_;
  Capacity capacity_;
  WorkerIdentity identity_;
  WorkerLimits limits_;
  std::function<Clock::time_point()> now_;
  std::unique_ptr<Worker> worker_;  ///< null: the last one was lost
  bool is_launched_ = false;
  std::uint64_t epoch_ = 0;      ///< of the last step
  std::int64_t tokens_ = 0;      ///< of it
  Clock::time_point begin_{};    ///< of it
  Clock::time_point last_sign_;  ///< of the worker's life
  std::optional<StepResult> result_;
  std::exception_ptr failure_;
  std::chrono::duration<double> slowest_{0};  ///< per token, of finished steps
  std::int64_t deaths_ = 0;
  int deaths_in_a_row_ = 0;
};

}  // namespace hyb
