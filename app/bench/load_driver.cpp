#include "app/bench/load_driver.h"

#include <algorithm>
#include <map>
#include <queue>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace hyb::app {

void SteadyTimer::wait_until(TimePoint time) {
  constexpr std::chrono::milliseconds wait_max{50};
  std::this_thread::sleep_until(std::min(time, now() + wait_max));
}

namespace {

class LoadDriver final : public Sink {
 public:
  LoadDriver(Engine& engine, RequestSource& source, Timer& timer, const LoadDriverOptions& options)
      : engine_(engine),
        source_(source),
        timer_(timer),
        options_(options),
        begin_(timer.now()),
        records_(source.size()),
        followers_(source.size()) {
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (const auto before = source.follows(i)) {
        followers_[*before].push_back(i);
      } else {
        to_come_.emplace(source.due_s(i), i);
      }
    }
  }

  // The engine knows this sink until all its requests have ended.
  ~LoadDriver() override {
    for (const auto& [id, i] : std::map(active_)) engine_.cancel(id);
  }

  LoadResult run() {
    bool is_interrupted = false;
    while (ended_ < records_.size() && !(is_interrupted = options_.is_stopped())) {
      send_due();
      if (!active_.empty()) {
        engine_.step();
        options_.progress(ended_);
      } else if (ended_ < records_.size()) {
        timer_.wait_until(begin_ + seconds(to_come_.top().first));
      }
    }
    LoadResult result = {
        .records = {}, .duration_s = last_end_s_, .is_interrupted = is_interrupted};
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (has_ended(i)) result.records.push_back(std::move(records_[i]));
    }
    return result;
  }

 private:
  using Due = std::pair<double, std::size_t>;

  static std::chrono::nanoseconds seconds(double count) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(count));
  }
  double seconds_at(Timer::TimePoint time) const {
    return std::chrono::duration<double>(time - begin_).count();
  }
  bool has_ended(std::size_t i) const {
    return records_[i].is_answered() || !records_[i].error.empty();
  }
  bool is_full() const {
    return options_.concurrency_max > 0 && std::ssize(active_) >= options_.concurrency_max;
  }

  void on_text(RequestId, std::int32_t, std::string_view) override {}

  void on_finish(RequestId id, std::int32_t, const Completion& completion) override {
    const auto found = active_.find(id);
    if (found == active_.end()) return;
    const std::size_t i = found->second;
    RequestRecord& record = records_[i];
    record.usage = completion.usage;
    for (const Timer::TimePoint time : completion.token_times) {
      record.token_s.push_back(seconds_at(time));
    }
    if (completion.reason == FinishReason::error) {
      record.error = completion.error;
    } else if (completion.reason == FinishReason::cancelled) {
      record.token_s.clear();  // it was not measured to its end
      active_.erase(found);
      return;
    }
    if (is_full()) free_since_s_ = seconds_at(timer_.now());
    active_.erase(found);
    if (record.error.empty()) source_.answered(i, completion);
    end(i);
  }

  void end(std::size_t i) {
    records_[i].ended_s = seconds_at(timer_.now());
    last_end_s_ = std::max(last_end_s_, records_[i].ended_s);
    ++ended_;
    for (const std::size_t next : followers_[i]) {
      to_come_.emplace(std::max(source_.due_s(next), records_[i].ended_s), next);
    }
  }

  void send_due() {
    const double now = seconds_at(timer_.now());
    for (; !to_come_.empty() && to_come_.top().first <= now; to_come_.pop()) {
      const auto [due, i] = to_come_.top();
      records_[i].due_s = due;
      due_.push(i);
    }
    while (!due_.empty() && !is_full()) {
      const std::size_t i = due_.top();
      due_.pop();
      send(i);
    }
  }

  /// A request that came while a step ran, and for which there was room, counts as sent when it
  /// came: a client of a server would have sent it.
  void send(std::size_t i) {
    RequestRecord& record = records_[i];
    record.started_s = std::max(record.due_s, free_since_s_);
    try {
      Request request = source_.request(i);
      request.token_times = true;
      record.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
      record.tokens_requested = request.max_tokens;
      const RequestId id = engine_.submit(std::move(request), *this);
      active_[id] = i;
      source_.sent(i, id);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::memory) throw;
      record.error = error.what();
      record.is_refused = true;
      end(i);
    }
  }

  Engine& engine_;
  RequestSource& source_;
  Timer& timer_;
  const LoadDriverOptions& options_;
  Timer::TimePoint begin_;
  std::vector<RequestRecord> records_;
  std::vector<std::vector<std::size_t>> followers_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> to_come_;  ///< the soonest on top
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> due_;
  std::map<RequestId, std::size_t> active_;
  std::size_t ended_ = 0;
  double free_since_s_ = 0;  ///< there was no room for another request before
  double last_end_s_ = 0;
};

}  // namespace

LoadResult run_load(Engine& engine, RequestSource& source, Timer& timer,
                    const LoadDriverOptions& options) {
  require(engine.idle(), "load: the engine is idle before");
  return LoadDriver(engine, source, timer, options).run();
}

}  // namespace hyb::app
