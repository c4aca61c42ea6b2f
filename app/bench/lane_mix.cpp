#include "app/bench/lane_mix.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/statistics.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

/// Tokens of the prompt of an answer that goes on, and steps until all of them do.
constexpr std::int32_t short_prompt = 16;
constexpr int first_steps = 16;

double in_ms(std::chrono::nanoseconds time) { return 1e-6 * static_cast<double>(time.count()); }

class MixDriver final : public Sink {
 public:
  MixDriver(Engine& engine, const LaneMix& mix, Timer& timer,
            const std::function<Request(std::int32_t)>& draw)
      : engine_(engine), mix_(mix), timer_(timer), draw_(draw) {}

  ~MixDriver() override { cancel_all(); }

  std::optional<LaneMixRun> run(const std::function<bool()>& is_stopped) {
    for (std::int32_t i = 0; i < mix_.answers; ++i) go_on();
    for (int left = first_steps; left > 0; left -= engine_.waiting() == 0 ? 1 : 0) {
      if (is_stopped()) return std::nullopt;
      engine_.step();
    }
    begin_ = timer_.now();
    while (answered_ < mix_.prompts) {
      if (is_stopped()) return std::nullopt;
      send_due();
      engine_.idle() ? timer_.wait_until(due(sent_)) : static_cast<void>(engine_.step());
    }
    end_ = timer_.now();
    cancel_all();
    result_.duration_s = 1e-3 * in_ms(end_ - begin_);
    return std::move(result_);
  }

 private:
  Timer::TimePoint due(std::int32_t prompt) const {
    return begin_ + std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::duration<double>(prompt / mix_.rate));
  }

  /// A new one of the answers that go on, as long as the engine allows.
  void go_on() {
    Request request = draw_(short_prompt);
    request.max_tokens = engine_.length_max() - short_prompt;
    going_on_.insert(send(std::move(request)));
  }

  RequestId send(Request request) {
    request.ignore_eos = true;
    request.token_times = true;
    request.keep_snapshots = false;  // no prompt comes again
    return engine_.submit(std::move(request), *this);
  }

  void send_due() {
    for (; sent_ < mix_.prompts && due(sent_) <= timer_.now(); ++sent_) {
      Request request = draw_(mix_.prompt_tokens);
      request.max_tokens = mix_.answer_tokens;
      prompts_.emplace(send(std::move(request)), due(sent_));
    }
  }

  void cancel_all() {
    is_over_ = true;
    for (const RequestId id : std::set(going_on_)) engine_.cancel(id);
    for (const auto& [id, time] : std::map(prompts_)) engine_.cancel(id);
  }

  void on_text(RequestId, std::int32_t, std::string_view) override {}

  void on_finish(RequestId id, std::int32_t, const Completion& completion) override {
    const bool went_on = going_on_.erase(id) > 0;
    const auto prompt = prompts_.find(id);
    const Timer::TimePoint arrival = went_on ? Timer::TimePoint() : prompt->second;
    if (!went_on) prompts_.erase(prompt);
    if (completion.reason == FinishReason::error) {
      throw Error(ErrorKind::runtime, "pd-mix: " + completion.error);
    }
    if (went_on) {
      add_gaps(completion.token_times);
      if (!is_over_) go_on();
    } else if (!is_over_) {
      result_.ttft_ms.push_back(in_ms(completion.token_times.front() - arrival));
      result_.prompt_tokens += completion.usage.prompt_tokens;
      ++answered_;
    }
  }

  void add_gaps(const std::vector<Timer::TimePoint>& times) {
    for (std::size_t i = 1; i < times.size(); ++i) {
      const bool is_inside = times[i] > begin_ && (!is_over_ || times[i] <= end_);
      if (!is_inside) continue;
      result_.itl_ms.push_back(in_ms(times[i] - times[i - 1]));
      ++result_.answer_tokens;
    }
  }

  Engine& engine_;
  const LaneMix& mix_;
  Timer& timer_;
  const std::function<Request(std::int32_t)>& draw_;
  Timer::TimePoint begin_ = Timer::TimePoint::max(), end_ = Timer::TimePoint::max();
  std::set<RequestId> going_on_;
  std::map<RequestId, Timer::TimePoint> prompts_;  ///< and when they arrived
  std::int32_t sent_ = 0, answered_ = 0;           ///< of the prompts
  bool is_over_ = false;
  LaneMixRun result_;
};

/// The figures of all repetitions together.
struct Figures {
  double ttft_p50 = 0, ttft_max = 0;  ///< ms
  double itl_p50 = 0, itl_p99 = 0;    ///< ms
  double answer_rate = 0, prompt_rate = 0;

  /// Nothing where most tokens come several at a time, by drafts: then there is no time between.
  std::optional<double> itl_ratio() const {
    return itl_p50 > 0 ? std::optional(itl_p99 / itl_p50) : std::nullopt;
  }
};

Figures figures_of(const std::vector<LaneMixRun>& runs) {
  std::vector<double> ttft, itl;
  double seconds = 0, answers = 0, prompts = 0;
  for (const LaneMixRun& run : runs) {
    ttft.insert(ttft.end(), run.ttft_ms.begin(), run.ttft_ms.end());
    itl.insert(itl.end(), run.itl_ms.begin(), run.itl_ms.end());
    seconds += run.duration_s;
    answers += static_cast<double>(run.answer_tokens);
    prompts += static_cast<double>(run.prompt_tokens);
  }
  std::sort(ttft.begin(), ttft.end());
  std::sort(itl.begin(), itl.end());
  return {.ttft_p50 = percentile(ttft, 50),
          .ttft_max = percentile(ttft, 100),
          .itl_p50 = percentile(itl, 50),
          .itl_p99 = percentile(itl, 99),
          .answer_rate = seconds > 0 ? answers / seconds : 0,
          .prompt_rate = seconds > 0 ? prompts / seconds : 0};
}

constexpr const char* name_together = "colocated";
constexpr const char* name_apart = "disaggregated";

Json row_of(const LaneMix& mix, const char* lanes, const std::string& threads,
            const std::vector<LaneMixRun>& runs) {
  const Figures figures = figures_of(runs);
  const std::optional<double> ratio = figures.itl_ratio();
  Json row = {{"lanes", lanes},
              {"threads", threads},
              {"running_answers", mix.answers},
              {"prompts", mix.prompts},
              {"prompt_tokens", mix.prompt_tokens},
              {"request_rate", mix.rate},
              {"repetitions", runs.size()},
              {"median_ttft_ms", figures.ttft_p50},
              {"max_ttft_ms", figures.ttft_max},
              {"median_itl_ms", figures.itl_p50},
              {"p99_itl_ms", figures.itl_p99},
              {"itl_p99_over_median", ratio ? Json(*ratio) : Json(nullptr)},
              {"answer_tokens_per_s", figures.answer_rate},
              {"prompt_tokens_per_s", figures.prompt_rate}};
  Json ttfts = Json::array(), itls = Json::array();
  for (const LaneMixRun& run : runs) {
    for (const double value : run.ttft_ms) ttfts.push_back(value / 1000);
    for (const double value : run.itl_ms) itls.push_back(value / 1000);
  }
  row["ttfts"] = std::move(ttfts);
  row["itls"] = std::move(itls);
  return row;
}

}  // namespace

std::optional<LaneMixRun> run_mix(Engine& engine, const LaneMix& mix, Timer& timer,
                                  const std::function<Request(std::int32_t tokens)>& draw,
                                  const std::function<bool()>& is_stopped) {
  require(engine.idle(), "pd-mix: the engine is idle before");
  return MixDriver(engine, mix, timer, draw).run(is_stopped);
}

Table lane_table(const LaneComparison& comparison) {
  Table table = {.columns = columns_of("lanes|" + comparison.unit +
                                       "|>TTFT p50 (ms)|>TTFT max|>ITL p50 (ms)|>ITL p99"
                                       "|>p99 / p50|>answers (t/s)|>prompts (t/s)")};
  const auto add = [&](const char* lanes, const std::string& threads,
                       const std::vector<LaneMixRun>& runs) {
    const Figures of = figures_of(runs);
    const std::optional<double> ratio = of.itl_ratio();
    table.rows.push_back(
        {lanes, threads, fmt::format("{:.0f}", of.ttft_p50), fmt::format("{:.0f}", of.ttft_max),
         fmt::format("{:.2f}", of.itl_p50), fmt::format("{:.2f}", of.itl_p99),
         ratio ? fmt::format("{:.1f}", *ratio) : "-", fmt::format("{:.1f}", of.answer_rate),
         fmt::format("{:.1f}", of.prompt_rate)});
  };
  add(name_together, comparison.units_together, comparison.together);
  add(name_apart, comparison.units_apart, comparison.apart);
  return table;
}

std::string lane_verdict(const LaneComparison& comparison) {
  const Figures together = figures_of(comparison.together), apart = figures_of(comparison.apart);
  struct Kind {
    const char* name;
    double Figures::*figure;
    bool is_less_better;
    const char* unit;
  };
  constexpr std::array kinds = {Kind{"ITL p99", &Figures::itl_p99, true, "ms"},
                                Kind{"ITL p50", &Figures::itl_p50, true, "ms"},
                                Kind{"TTFT p50", &Figures::ttft_p50, true, "ms"},
                                Kind{"answers", &Figures::answer_rate, false, "tokens/s"}};
  std::string text;
  for (const Kind& kind : kinds) {
    const double one = together.*kind.figure, other = apart.*kind.figure;
    if (one == other) {
      text += fmt::format("{}: even, {:.2f} {}\n", kind.name, one, kind.unit);
      continue;
    }
    const bool apart_wins = kind.is_less_better ? other < one : other > one;
    const double better = apart_wins ? other : one, worse = apart_wins ? one : other;
    text += fmt::format("{}: {} wins, {:.2f} {} against {:.2f}\n", kind.name,
                        apart_wins ? name_apart : name_together, better, kind.unit, worse);
  }
  return text;
}

std::vector<Json> lane_rows(const LaneComparison& comparison) {
  return {row_of(comparison.mix, name_together, comparison.units_together, comparison.together),
          row_of(comparison.mix, name_apart, comparison.units_apart, comparison.apart)};
}

}  // namespace hyb::app
