#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/bench/request_record.h"
#include "app/bench/request_source.h"
#include "app/bench/timer.h"
#include "core/engine/engine.h"

namespace hyb::app {

struct LoadOptions {
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
                    const LoadOptions& options);

}  // namespace hyb::app
