#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

#include "core/engine/runner.h"

namespace hyb {

/// Makes steps of a synchronous runner asynchronous: a thread of its own runs them. For a
/// prefill lane in memory of its own (EngineOptions::link): no step follows one that runs.
class ThreadedRunner final : public Runner {
 public:
  /// `runner` outlives this; only the thread runs its steps. Throws Error(runtime) when the thread
  /// cannot be started.
  explicit ThreadedRunner(Runner& runner);
  /// Waits for a step that runs.
  ~ThreadedRunner() override;
  ThreadedRunner(const ThreadedRunner&) = delete;
  ThreadedRunner& operator=(const ThreadedRunner&) = delete;

  Capacity capacity() const override { return runner_->capacity(); }
  StepResult run(const Step& step) override;
  bool is_async() const override { return true; }
  bool is_done() override;
  void launch(const Step& step) override;
  /// Also throws what the step threw.
  StepResult wait() override;
  bool commit(SuperblockId superblock, bool may_create) override {
    return runner_->commit(superblock, may_create);
  }
  void release_caches() override { runner_->release_caches(); }
  std::string holdings() const override { return runner_->holdings(); }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override;
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override;

 private:
  enum class State : std::uint8_t { idle, launched, done, ending };

  void work();

  Runner* runner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;   ///< this and what follows: under the mutex
  const Step* step_ = nullptr;  ///< of launch()
  StepResult result_;
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace hyb
