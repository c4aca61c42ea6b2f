#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/workers/worker.h"
#include "tests/sim/lane_runner.h"
#include "tests/sim/random.h"

namespace hyb::sim {

/// Bugs of workers, or of an engine that has them.
enum class WorkerBug {
  none,
  stale_epoch,    ///< an answer to an earlier step is taken for one to the step under way
  outlives_end,   ///< a worker that was given up writes when its units have others
  answered_lost,  ///< a step whose worker died is taken for one that has run
};

const char* name_of(WorkerBug bug);

/// Workers whose steps a LaneRunner does, at any pace: they die at any moment, hang, lose their
/// answers, and say late what is of no use any more. Their clock goes on while one is listened to.
class ToyWorkers {
 public:
  using Clock = std::chrono::steady_clock;

  /// `lane` outlives this. There are fewer faults than a request may have lost steps.
  ToyWorkers(LaneRunner& lane, std::uint64_t seed, WorkerBug bug)
      : lane_(&lane), random_(seed), bug_(bug), faults_left_(random_.between(0, 15)) {}

  std::unique_ptr<Worker> start();
  Clock::time_point now() const { return now_; }

  static WorkerIdentity identity() { return {{"model", "a toy"}}; }

  std::int64_t started = 0, died = 0, hung = 0, lost = 0;
  std::int64_t late = 0;  ///< answers to earlier steps

 private:
  friend class ToyWorker;

  LaneRunner* lane_;
  Random random_;
  WorkerBug bug_;
  std::int32_t faults_left_;
  Clock::time_point now_{std::chrono::hours(1)};
  std::vector<Message> said_;  ///< answers, of which some come again
  bool is_left_ = false;       ///< by WorkerBug::outlives_end: what a worker has yet to write
};

}  // namespace hyb::sim
