#include "app/bench/simulated_policy.h"

#include <algorithm>
#include <utility>

#include "app/bench/cases.h"
#include "app/options/options.h"

namespace hyb::app {
namespace {

/// One request, and what it was answered.
class OneRequest final : public RequestSource {
 public:
  explicit OneRequest(Request request) : request_(std::move(request)) {}

  std::size_t size() const override { return 1; }
  Request request(std::size_t) override { return request_; }
  void answered(std::size_t, const Completion& completion) override { answer = completion; }

  Completion answer;

 private:
  Request request_;
};

void shift(RequestRecord& record, double by_s) {
  for (double* time : {&record.due_s, &record.started_s, &record.ended_s}) *time += by_s;
  for (double& time : record.token_s) time += by_s;
}

/// Leaves a snapshot after the first `tokens` of the prompt and nothing else.
void prepare(const SimulatedRun& run, const Request& request, std::int32_t tokens, Timer& timer) {
  run.engine.prefixes().clear();
  if (tokens < 1) return;
  Request prefix;
  prefix.prompt.assign(request.prompt.begin(), request.prompt.begin() + tokens);
  prefix.prefill_only = true;
  OneRequest source(std::move(prefix));
  LoadDriverOptions load;
  load.is_stopped = run.is_stopped;
  static_cast<void>(run_load(run.engine, source, timer, load));
}

}  // namespace

bool is_simulated(const std::string& policy) {
  return !policy.empty() && !value_of(words::eviction, policy) && policy != no_policy;
}

LoadResult run_simulated(const SimulatedRun& run, Timer& timer) {
  TraceRequests requests(run.trace, run.options);
  LoadResult all;
  LoadDriverOptions load;
  load.concurrency_max = 1;
  load.is_stopped = run.is_stopped;
  for (std::size_t i = 0; i < run.trace.size() && !run.is_stopped(); ++i) {
    Request request = requests.request(i);
    const std::int32_t reused = run.prediction.reused(run.trace[i]);
    const auto prompt = static_cast<std::int32_t>(request.prompt.size());
    prepare(run, request, std::min(reused, prompt - 1), timer);
    request.keep_snapshots = false;
    OneRequest source(std::move(request));
    run.measure(true);
    LoadResult one = run_load(run.engine, source, timer, load);
    run.measure(false);
    if (one.is_interrupted) break;
    for (RequestRecord& record : one.records) {
      shift(record, all.duration_s);
      all.records.push_back(std::move(record));
    }
    all.duration_s += one.duration_s;
    requests.answered(i, source.answer);
    run.progress(i + 1);
  }
  all.is_interrupted = run.is_stopped();
  return all;
}

}  // namespace hyb::app
