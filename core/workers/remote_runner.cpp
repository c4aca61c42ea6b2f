#include "core/workers/remote_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb {
namespace {

/// Between two looks at the clock, while a message is waited for.
constexpr std::chrono::milliseconds look_time{100};

}  // namespace

RemoteRunner::RemoteRunner(StartWorker start, const Capacity& capacity, WorkerIdentity identity,
                           const WorkerLimits& limits, std::function<Clock::time_point()> now)
    : start_(std::move(start)),
      capacity_(capacity),
      identity_(std::move(identity)),
      limits_(limits),
      now_(std::move(now)) {
  start_worker();
}

RemoteRunner::~RemoteRunner() = default;

void RemoteRunner::start_worker() {
  const Clock::time_point begin = now_();
  do {
    worker_ = start_();
  } while (!greet());
  const std::chrono::duration<double, std::milli> time = now_() - begin;
  log::debug(fmt::format("prefill worker: ready after {:.1f} ms", time.count()));
}

/// False: the worker was lost before it was ready. After an error there is none, either.
bool RemoteRunner::greet() {
  last_sign_ = now_();
  try {
    for (;;) {
      const Received received = worker_->receive(look_time);
      if (received.state == Received::State::ended) {
        lose("it ended before it was ready");
        return false;
      }
      if (received.state == Received::State::nothing) {
        if (now_() - last_sign_ <= limits_.silence) continue;
        lose("it is silent before it is ready");
        return false;
      }
      last_sign_ = now_();
      const MessageKind kind = read_header(received.message).kind;
      if (kind == MessageKind::failure) throw read_failure(received.message);
      if (kind == MessageKind::heartbeat) continue;
      check_same(identity_, read_hello(received.message));
      return true;
    }
  } catch (...) {
    worker_.reset();
    throw;
  }
}

/// Ends the worker. Throws Error(runtime) when it was one too many.
void RemoteRunner::lose(const std::string& what) {
  ++deaths_;
  const std::string how = std::exchange(worker_, nullptr)->end();
  const std::string text = fmt::format("prefill worker: {} ({})", what, how);
  if (++deaths_in_a_row_ < limits_.deaths_in_a_row) {
    log::warning(text + "; another one takes its place");
    return;
  }
  const int deaths = std::exchange(deaths_in_a_row_, 0);
  throw Error(ErrorKind::runtime,
              fmt::format("{}; {} in a row ended before one had finished a step: see whether "
                          "memory is short (dmesg), or leave --disaggregate out",
                          text, deaths));
}

void RemoteRunner::launch(const Step& step) {
  require(!is_launched_, "remote runner: one step runs at a time");
  const Message message = step_message(++epoch_, step);
  if (worker_ == nullptr) start_worker();
  while (!worker_->send(message, limits_.silence)) {
    lose("it took no step");
    start_worker();
  }
  tokens_ = 0;
  for (const Span& span : step.spans) tokens_ += std::ssize(span.tokens);
  begin_ = last_sign_ = now_();
  is_launched_ = true;
}

bool RemoteRunner::is_done() {
  require(is_launched_, "remote runner: a step was launched");
  if (!has_outcome()) look(std::chrono::milliseconds(0));
  return has_outcome();
}

StepResult RemoteRunner::wait() {
  require(is_launched_, "remote runner: a step was launched");
  while (!has_outcome()) look(look_time);
  is_launched_ = false;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  if (failure != nullptr) std::rethrow_exception(failure);
  return *std::exchange(result_, std::nullopt);
}

StepResult RemoteRunner::run(const Step& step) {
  launch(step);
  return wait();
}

/// Takes what the worker has said, and waits for something to be said. A worker that is lost is an
/// outcome.
void RemoteRunner::look(std::chrono::milliseconds patience) {
  const auto lost = [&](const std::string& what) {
    try {
      lose(what);
      failure_ = std::make_exception_ptr(StepLost("prefill worker: " + what));
    } catch (...) {
      failure_ = std::current_exception();
    }
  };
  try {
    Received received = worker_->receive(patience);
    while (received.state == Received::State::message) {
      last_sign_ = now_();
      take(received.message);
      if (has_outcome()) return;
      received = worker_->receive(std::chrono::milliseconds(0));
    }
    if (received.state == Received::State::ended) return lost("it ended amid a step");
  } catch (const Error& error) {
    return lost(error.what());
  }
  const std::string hangs = why_it_hangs();
  if (!hangs.empty()) lost(hangs);
}

/// Ignores a message about another step than the one under way: that was answered, or is run again.
void RemoteRunner::take(const Message& message) {
  const MessageHeader header = read_header(message);
  if (header.kind == MessageKind::heartbeat || header.epoch != epoch_) return;
  if (header.kind == MessageKind::failure) {
    failure_ = std::make_exception_ptr(read_failure(message));
  } else {
    result_ = read_result(message);
  }
  deaths_in_a_row_ = 0;
  const std::chrono::duration<double> time = last_sign_ - begin_;
  slowest_ = std::max(slowest_, time / static_cast<double>(std::max<std::int64_t>(tokens_, 1)));
}

std::optional<std::chrono::duration<double>> RemoteRunner::step_limit() const {
  if (slowest_.count() == 0) return std::nullopt;
  return std::max<std::chrono::duration<double>>(
      limits_.step_least, limits_.step_factor * static_cast<double>(tokens_) * slowest_);
}

/// Empty: it does not, as far as can be seen.
std::string RemoteRunner::why_it_hangs() const {
  const Clock::time_point now = now_();
  if (now - last_sign_ > limits_.silence) {
    return fmt::format("no sign of life for {:.1f} s",
                       std::chrono::duration<double>(now - last_sign_).count());
  }
  const auto limit = step_limit();
  if (limit && now - begin_ > *limit) {
    return fmt::format("a step of {} tokens runs for more than {:.1f} s", tokens_, limit->count());
  }
  return {};
}

void RemoteRunner::read(ViewId, std::int32_t, std::span<std::byte>) {
  require(false, "remote runner: units are read by the engine's own runner");
}

void RemoteRunner::write(ViewId, std::int32_t, std::span<const std::byte>) {
  require(false, "remote runner: units are written by the engine's own runner");
}

}  // namespace hyb
