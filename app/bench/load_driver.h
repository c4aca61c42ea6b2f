#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/bench/workload.h"
#include "core/engine/engine.h"
#include "core/engine/request.h"

namespace hyb::app {

/// The clock that a workload lives by.
class Timer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Timer() = default;
  virtual TimePoint now() = 0;
  /// Returns at `time`, or sooner when there may be something else to look at.
  virtual void wait_until(TimePoint time) = 0;
};

/// The real one: waits for 50 ms at most.
class SteadyTimer final : public Timer {
 public:
  TimePoint now() override { return std::chrono::steady_clock::now(); }
  void wait_until(TimePoint time) override;
};

/// Course of one request of a workload. Times are seconds since the workload began.
struct RequestRecord {
  double due_s = 0;      ///< when it came
  double started_s = 0;  ///< when it was sent: later than due_s where the client held it back
  double ended_s = 0;    ///< when its answer was complete
  std::vector<double> token_s;  ///< when each token of the answer was there
  std::int32_t prompt_tokens = 0;
  std::int32_t tokens_requested = 0;  ///< of the answer
  Usage usage;
  bool is_refused = false;  ///< the engine would not take it: it does not fit
  std::string error;        ///< why there is no answer; "": there is one

  bool is_answered() const { return error.empty() && !token_s.empty(); }
  double ttft_s() const { return token_s.front() - started_s; }
  double e2el_s() const { return token_s.back() - started_s; }
  double client_queue_s() const { return started_s - due_s; }
};

struct LoadDriverOptions {
  std::int32_t concurrency_max = 0;  ///< most requests that are sent and unanswered; 0: no limit
  std::function<bool()> is_stopped = [] { return false; };  ///< looked at before every step
  std::function<void(std::size_t ended)> progress = [](std::size_t) {};  ///< after every step
};

struct LoadResult {
  std::vector<RequestRecord> records;  ///< of all requests that ended, in the order of the source
  double duration_s = 0;               ///< begin -> last answer
  bool is_interrupted = false;
};

/// Sends the requests of a source to an engine as they come and as the limit of concurrency allows,
/// lets the engine run, and writes down when which token was there. Those that are due go out in
/// the order of the source. The engine is idle before and after. A request that the engine refuses
/// or that ends without an answer is a record with an error. Throws what Engine::step throws; what
/// ran is cancelled then.
LoadResult run_load(Engine& engine, RequestSource& source, Timer& timer,
                    const LoadDriverOptions& options);

}  // namespace hyb::app
