#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/request.h"

namespace hyb::app {

/// What became of one request of a workload. Times are seconds since the workload began.
struct RequestRecord {
  double due_s = 0;      ///< when it came
  double started_s = 0;  ///< when it was sent: later than due_s where the client held it back
  double ended_s = 0;    ///< when its answer was complete
  std::vector<double> token_s;  ///< when each token of the answer was there
  std::int32_t prompt_tokens = 0;
  Usage usage;
  bool is_refused = false;  ///< the engine would not take it: it does not fit
  std::string error;        ///< why there is no answer; "": there is one

  bool is_answered() const { return error.empty() && !token_s.empty(); }
  double ttft_s() const { return token_s.front() - started_s; }
  double e2el_s() const { return token_s.back() - started_s; }
  double client_queue_s() const { return started_s - due_s; }
};

}  // namespace hyb::app
