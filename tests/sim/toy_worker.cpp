#include "tests/sim/toy_worker.h"

#include <cstring>
#include <string>
#include <utility>

#include "core/workers/messages.h"
#include "tests/sim/toy_runner.h"

namespace hyb::sim {

const char* name_of(WorkerBug bug) {
  static const char* const names[] = {"none", "stale epoch", "outlives end", "answered lost"};
  return names[static_cast<int>(bug)];
}

namespace {

Received said(Message message) {
  return {.state = Received::State::message, .message = std::move(message)};
}

/// The same message, as if it were about another step.
Message with_epoch(Message message, std::uint64_t epoch) {
  constexpr std::size_t place = 8;
  std::memcpy(message.data() + place, &epoch, sizeof epoch);
  return message;
}

}  // namespace

class ToyWorker final : public Worker {
 public:
  explicit ToyWorker(ToyWorkers& all) : all_(&all) {}
  ~ToyWorker() override {
    if (!has_ended_) end();
  }
  ToyWorker(const ToyWorker&) = delete;
  ToyWorker& operator=(const ToyWorker&) = delete;

  bool send(const Message& message, std::chrono::milliseconds) override {
    is_dead_ = is_dead_ || fault(1);
    if (is_dead_) return false;
    step_ = std::make_unique<OwnedStep>(message);
    epoch_ = read_header(message).epoch;
    all_->lane_->launch(step_->step());
    is_hung_ = fault(2);
    if (is_hung_) ++all_->hung;
    return true;
  }

  Received receive(std::chrono::milliseconds patience) override {
    if (has_ended_) throw Violation("no one listens to a worker that was ended");
    all_->now_ += patience;
    if (!all_->said_.empty() && chance(3)) return say_late();
    if (is_dead_) return {.state = Received::State::ended, .message = {}};
    if (!is_ready_) return be_ready();
    if (is_hung_ || step_ == nullptr) return {};
    if (fault(3)) return die();
    if (chance(20)) return said(heartbeat_message(epoch_));
    return all_->lane_->is_done() ? answer() : Received{};
  }

  std::string end() override {
    has_ended_ = true;
    if (step_ == nullptr) return "it had nothing to do";
    if (all_->bug_ == WorkerBug::outlives_end) {
      all_->is_left_ = true;
    } else {
      all_->lane_->die();
    }
    step_.reset();
    return "amid a step";
  }

 private:
  bool chance(std::int32_t percent) { return all_->random_.chance(percent); }

  bool fault(std::int32_t percent) {
    if (all_->faults_left_ == 0 || !chance(percent)) return false;
    --all_->faults_left_;
    return true;
  }

  Received be_ready() {
    if (fault(2)) return die();
    if (chance(30)) return {};
    if (chance(30)) return said(heartbeat_message(0));
    is_ready_ = true;
    return said(hello_message(ToyWorkers::identity()));
  }

  Received die() {
    is_dead_ = true;
    ++all_->died;
    if (step_ != nullptr && all_->bug_ == WorkerBug::answered_lost) {
      StepResult result;
      for (const Span& span : step_->step().spans) {
        result.sampled.resize(result.sampled.size() + span.samples.size());
      }
      return said(result_message(epoch_, result));
    }
    return {.state = Received::State::ended, .message = {}};
  }

  /// What was said before, maybe by another worker.
  Received say_late() {
    const Message& message = all_->said_[all_->random_.below(all_->said_.size())];
    if (!is_ready_ || read_header(message).epoch == epoch_) return {};
    ++all_->late;
    return said(all_->bug_ == WorkerBug::stale_epoch ? with_epoch(message, epoch_) : message);
  }

  Received answer() {
    Message message;
    try {
      message = result_message(epoch_, all_->lane_->wait());
    } catch (const StepFailure& failure) {
      message = failure_message(epoch_, ErrorKind::runtime, failure.what());
    }
    step_.reset();
    all_->said_.push_back(message);
    if (!fault(2)) return said(std::move(message));
    is_hung_ = true;
    ++all_->lost;
    return {};
  }

  ToyWorkers* all_;
  std::unique_ptr<OwnedStep> step_;
  std::uint64_t epoch_ = 0;
  bool is_ready_ = false, is_dead_ = false, is_hung_ = false, has_ended_ = false;
};

std::unique_ptr<Worker> ToyWorkers::start() {
  if (std::exchange(is_left_, false)) lane_->die();
  ++started;
  return std::make_unique<ToyWorker>(*this);
}

}  // namespace hyb::sim
