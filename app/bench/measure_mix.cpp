#include <algorithm>
#include <cstdint>
#include <random>

#include <fmt/format.h>

#include "app/bench/bench_setting.h"
#include "app/bench/lane_mix.h"
#include "app/bench/measure.h"
#include "app/bench/report.h"
#include "app/runtime/session.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

Session open_session(const BenchJob& job, const LaneMix& mix, const Environment& environment) {
  const StopAtOnce nothing_to_lose;
  ModelOptions options = job.model;
  options.lanes = lanes_to_compare(options);
  // Those that go on, one that is answered and one that waits for it.
  return Session::open(resolve(options, environment), {.sequences_max = mix.answers + 2,
                                                       .chunk_tokens = job.bench.chunk_tokens,
                                                       .expects_more = true});
}

/// Random prompts: other ones in every run, the same in every measurement.
class PromptDrawer {
 public:
  PromptDrawer(const Session& session, std::uint64_t seed)
      : vocab_(session.tokenizer() != nullptr
                   ? std::min(session.tokenizer()->size(), session.model().plan.vocab)
                   : session.model().plan.vocab),
        random_(seed) {}

  Request operator()(std::int32_t tokens) {
    std::uniform_int_distribution<std::int32_t> token(0, vocab_ - 1);
    Request request;
    for (std::int32_t i = 0; i < tokens; ++i) request.prompt.push_back(TokenId{token(random_)});
    return request;
  }

 private:
  std::int32_t vocab_;
  std::mt19937_64 random_;
};

class MixBench {
 public:
  MixBench(Session& session, const BenchJob& job, LaneComparison& comparison)
      : session_(session), job_(job), comparison_(comparison) {}

  /// One prompt, so that memory is there. False: a signal came.
  bool warm_up(bool apart) {
    LaneMix mix = comparison_.mix;
    mix.prompts = 1;
    return run(mix, ~std::uint64_t{0}, apart).has_value();
  }

  /// False: a signal came.
  bool measure(std::int32_t repetition, bool apart) {
    std::optional<LaneMixRun> measured =
        run(comparison_.mix, static_cast<std::uint64_t>(repetition), apart);
    if (!measured) return false;
    (apart ? comparison_.apart : comparison_.together).push_back(*std::move(measured));
    return true;
  }

 private:
  std::optional<LaneMixRun> run(const LaneMix& mix, std::uint64_t number, bool apart) {
    session_.set_disaggregated(apart);
    session_.restart_engine(job_.model.reuse, session_.runner(), session_.speculation());
    PromptDrawer draw(session_, job_.bench.seed + number);
    return run_mix(session_.engine(), mix, timer_, std::ref(draw),
                   [] { return stop_signal() != 0; });
  }

  Session& session_;
  const BenchJob& job_;
  LaneComparison& comparison_;
  SteadyTimer timer_;
};

void print(const LaneComparison& comparison, const BenchSetting& setting,
           const std::string& format) {
  RowOutput output(format);
  for (Json row : lane_rows(comparison)) {
    row["build_commit"] = setting.build_commit;
    row["cpu_info"] = setting.cpu;
    row["model_filename"] = setting.model_filename;
    row["model_type"] = setting.model_type;
    row["chunk_tokens"] = setting.chunk_tokens;
    output.add(std::move(row));
  }
  output.finish();
  if (!is_for_people(format)) return;
  const LaneMix& mix = comparison.mix;
  write_stdout(fmt::format(
      "{}\n{}; chunks of {}\n{} running, a prompt of {} every {:.1f} s, {}, {}\n\n{}\n{}",
      model_text(setting), machine_text(setting), counted(setting.chunk_tokens, "token"),
      counted(mix.answers, "answer"), counted(mix.prompt_tokens, "token"), 1 / mix.rate,
      counted(mix.prompts, "prompt"),
      counted(static_cast<std::int64_t>(comparison.apart.size()), "repetition"),
      markdown_text(lane_table(comparison)), lane_verdict(comparison)));
}

}  // namespace

int measure_mix(const BenchJob& job) {
  LaneComparison comparison = {.mix = lane_mix(job.bench)};
  const Environment environment = read_environment();
  ProgressLine progress(environment);
  progress.show("loading " + job.model.model);
  Session session = open_session(job, comparison.mix, environment);
  const TwoLanes& lanes = *session.settings().lanes;
  const bool is_on_card = lanes.device == kernels::Device::cuda;
  comparison.unit = is_on_card ? "cards" : "threads";
  comparison.units_together =
      is_on_card ? fmt::format("cuda{}", lanes.decode.card) : std::to_string(lanes.threads());
  comparison.units_apart = lanes.text();
  const std::int32_t length = comparison.mix.prompt_tokens + comparison.mix.answer_tokens;
  if (session.memory().length_max < length) {
    throw Error(ErrorKind::memory,
                fmt::format("pd-mix: prompts and their answers have {}, there "
                            "is room for {}; give more --memory or --context",
                            counted(length, "token"), session.memory().length_max));
  }
  const std::int32_t repetitions = job.bench.repetitions > 0 ? job.bench.repetitions : 3;
  MixBench bench(session, job, comparison);
  progress.clear();
  progress.show("warming up");
  if (!bench.warm_up(false) || !bench.warm_up(true)) return 0;
  // A-B-B-A: what drifts in the machine meets both alike.
  for (std::int32_t i = 0; i < 2 * repetitions; ++i) {
    const bool apart = (i % 4 == 1) || (i % 4 == 2);
    progress.show(
        fmt::format("{} of {}: {}", i + 1, 2 * repetitions, apart ? "disaggregated" : "colocated"));
    if (!bench.measure(i / 2, apart)) break;
  }
  progress.clear();
  if (comparison.together.empty() || comparison.apart.empty()) return 0;
  session.set_disaggregated(false);
  print(comparison,
        setting_of(session.source(), session.model(), session.queue(),
                   session.memory().chunk_tokens, job.version),
        job.bench.output);
  return 0;
}

}  // namespace hyb::app
