#include "core/engine/threaded_runner.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/thread.h"

namespace hyb {

ThreadedRunner::ThreadedRunner(Runner& runner) : runner_(&runner) {
  require(!runner.is_async(), "threaded runner: steps that are asynchronous need no thread");
  thread_ = start_thread("threaded runner", [this] { work(); });
}

ThreadedRunner::~ThreadedRunner() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::launched; });
  state_ = State::ending;
  lock.unlock();
  changed_.notify_all();
  thread_.join();
}

void ThreadedRunner::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return state_ == State::launched || state_ == State::ending; });
    if (state_ == State::ending) return;
    const Step& step = *step_;
    lock.unlock();
    StepResult result;
    std::exception_ptr failure;
    try {
      result = runner_->run(step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    result_ = std::move(result);
    failure_ = std::move(failure);
    state_ = State::done;
    changed_.notify_all();
  }
}

void ThreadedRunner::launch(const Step& step) {
  {
    const std::lock_guard lock(mutex_);
    require(state_ == State::idle, "threaded runner: one step runs at a time");
    step_ = &step;
    state_ = State::launched;
  }
  changed_.notify_all();
}

bool ThreadedRunner::is_done() {
  const std::lock_guard lock(mutex_);
  require(state_ != State::idle, "threaded runner: a step was launched");
  return state_ == State::done;
}

StepResult ThreadedRunner::wait() {
  std::unique_lock lock(mutex_);
  require(state_ != State::idle, "threaded runner: a step was launched");
  changed_.wait(lock, [&] { return state_ == State::done; });
  state_ = State::idle;
  StepResult result = std::exchange(result_, {});
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  if (failure != nullptr) std::rethrow_exception(failure);
  return result;
}

StepResult ThreadedRunner::run(const Step& step) {
  launch(step);
  return wait();
}

void ThreadedRunner::read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) {
  runner_->read(view, unit, bytes);
}

void ThreadedRunner::write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) {
  runner_->write(view, unit, bytes);
}

}  // namespace hyb
