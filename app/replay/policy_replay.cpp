#include "app/replay/policy_replay.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "app/replay/replay.h"

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

/// Leaves a snapshot behind the first `tokens` of the prompt and nothing else.
void prepare(const PolicyReplay& replay, const Request& request, std::int32_t tokens,
             Timer& timer) {
  replay.engine.prefixes().clear();
  if (tokens < 1) return;
  Request prefix;
  prefix.prompt.assign(request.prompt.begin(), request.prompt.begin() + tokens);
  prefix.prefill_only = true;
  OneRequest source(std::move(prefix));
  LoadOptions load;
  load.is_stopped = replay.is_stopped;
  static_cast<void>(run_load(replay.engine, source, timer, load));
}

}  // namespace

bool is_foreign_policy(const std::string& name) {
  return !name.empty() && name != "gd" && name != "lru" && name != "none";
}

PolicyOptions foreign_policy(const std::string& name, std::size_t budget_bytes) {
  return policy_options({.policies = {name},
                         .snapshots = {"exact"},
                         .budgets = {std::to_string(budget_bytes)},
                         .ratios = {0.9},
                         .block_tokens = 32,
                         .sglang_states = "turn-end"})
      .front();
}

LoadResult run_policy(const PolicyReplay& replay, Timer& timer) {
  const std::unique_ptr<CachePolicy> policy = make_policy(replay.policy, replay.shape);
  std::vector<RequestTokens> served;  // a policy may keep what it served
  served.reserve(replay.trace.size());
  TraceRequests requests(replay.trace, replay.options);
  LoadResult all;
  LoadOptions load;
  load.concurrency_max = 1;
  load.is_stopped = replay.is_stopped;
  for (std::size_t i = 0; i < replay.trace.size() && !replay.is_stopped(); ++i) {
    Request request = requests.request(i);
    const std::int32_t reused = policy->serve(served.emplace_back(replay.trace[i])).reused;
    const auto prompt = static_cast<std::int32_t>(request.prompt.size());
    prepare(replay, request, std::min(reused, prompt - 1), timer);
    request.keep_snapshots = false;
    OneRequest source(std::move(request));
    replay.measure(true);
    LoadResult one = run_load(replay.engine, source, timer, load);
    replay.measure(false);
    if (one.is_interrupted) break;
    for (RequestRecord& record : one.records) {
      shift(record, all.duration_s);
      all.records.push_back(std::move(record));
    }
    all.duration_s += one.duration_s;
    requests.answered(i, source.answer);
    replay.progress(i + 1);
  }
  all.is_interrupted = replay.is_stopped();
  return all;
}

}  // namespace hyb::app
