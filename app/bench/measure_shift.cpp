#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/bench/bench_setting.h"
#include "app/bench/elastic_shift.h"
#include "app/bench/load_driver.h"
#include "app/bench/measure.h"
#include "app/bench/report.h"
#include "app/bench/workload.h"
#include "app/runtime/model_outline.h"
#include "app/runtime/session.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr std::int32_t sequences_limit = 256;

std::vector<double> shares_of(const BenchOptions& options) {
  if (!options.state_shares.empty()) return parse_shares(options.state_shares);
  return {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
}

/// Refuses what there is no fixed ratio with, and fills in how much memory there is.
RunSettings settings_for(const BenchJob& job, const Environment& environment) {
  ModelOptions options = job.model;
  const auto refuse = [](bool is_given, const std::string& what) {
    if (is_given) throw Error(ErrorKind::usage, "elastic-shift: leave " + what + " out");
  };
  refuse(options.lanes.is_on, "--disaggregate");
  refuse(options.pools.mode == kernels::MapMode::flat, "--memory-mode flat");
  refuse(options.reuse.snapshots == Precision::int8, "--snapshots int8");
  refuse((options.speculation.source != DraftSource::automatic &&
          options.speculation.source != DraftSource::off) ||
             !options.speculation.draft_model.empty(),
         "--spec");
  options.speculation.source = DraftSource::off;
  RunSettings settings = resolve(options, environment);
  const models::Geometry geometry = outline_of(settings).geometry;
  if (geometry.slot_bytes == 0 || geometry.pages.empty()) {
    throw Error(ErrorKind::usage,
                "elastic-shift: takes a model with both states and keys and values, not " +
                    settings.source.name());
  }
  if (settings.memory.kind == MemoryBudget::Kind::automatic && !options.pool_memory) {
    settings.pool_memory = geometry.slot_bytes * shift_memory_states;
  }
  return settings;
}

Session open_session(const BenchJob& job, const RunSettings& settings) {
  const StopAtOnce nothing_to_lose;
  return Session::open(settings, {.sequences_max = sequences_limit,
                                  .chunk_tokens = job.bench.chunk_tokens,
                                  .expects_more = true});
}

class ShiftBench {
 public:
  ShiftBench(Session& session, const BenchJob& job, ShiftComparison& comparison)
      : session_(session),
        job_(job),
        comparison_(comparison),
        meter_(session.runner(), session.roofline()) {
    material_.vocab = session.tokenizer() != nullptr
                          ? std::min(session.tokenizer()->size(), session.model().plan.vocab)
                          : session.model().plan.vocab;
    material_.terms.ignore_eos = true;
    material_.terms.keep_snapshots = false;  // no prompt comes again
  }

  /// Faults all memory in, and runs steps of all sizes. False: a signal came.
  bool warm_up() {
    restart({});
    MemoryPool& pool = session_.engine().pool();
    const std::int64_t slots = pool.superblocks().units_free(pool.layout().slot_view());
    pool.order_ahead(static_cast<std::int32_t>(slots));
    session_.engine().carry_out_orders();
    ShiftRow row;
    return run(row, comparison_.shift.phases.size() - 1, warm_up_round);
  }

  /// All phases, in all rounds. False: a signal came.
  bool measure(ShiftSetting& setting, std::int32_t repetition) {
    restart(setting.state_share);
    for (std::int32_t round = 0; round < ElasticShift::rounds; ++round) {
      for (std::size_t phase = 0; phase < setting.phases.size(); ++phase) {
        const auto number = static_cast<std::uint64_t>(repetition * ElasticShift::rounds + round);
        if (!run(setting.phases[phase], phase, number)) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::uint64_t warm_up_round = ~std::uint64_t{0};

  void restart(std::optional<double> state_share) {
    ReuseOptions reuse = job_.model.reuse;
    reuse.prefixes = false;
    reuse.state_share = state_share;
    session_.restart_engine(reuse, meter_, {});
    session_.engine().carry_out_orders();  // those of fixed owners
  }

  EngineEvents events() const {
    return events_of(session_.engine().usage(), session_.runner().graphs_recorded(),
                     session_.runner().graphs_replayed());
  }

  /// Every setting has the same prompts.
  bool run(ShiftRow& row, std::size_t phase, std::uint64_t number) {
    const std::vector<WorkItem> work = work_of(case_of(comparison_.shift.phases[phase]), material_,
                                               {job_.bench.seed, phase, number});
    ListedRequests source(work);
    LoadDriverOptions load;
    load.is_stopped = [] { return stop_signal() != 0; };
    load.progress = [&](std::size_t) { row.running += session_.engine().running(); };
    const EngineEvents before = events();
    static_cast<void>(meter_.take_totals());
    LoadResult result = run_load(session_.engine(), source, timer_, load);
    if (result.is_interrupted) return false;
    for (const RequestRecord& record : result.records) {
      if (!record.is_answered()) {
        throw Error(record.is_refused ? ErrorKind::memory : ErrorKind::runtime,
                    "elastic-shift: " + record.error);
      }
    }
    const RequestMetrics metrics =
        metrics_of(result.records, result.duration_s, {.percentages = {}, .goals = {}});
    row.row.repetitions.push_back({.records = std::move(result.records),
                                   .metrics = metrics,
                                   .events = events() - before,
                                   .steps = meter_.take_totals()});
    return true;
  }

  Session& session_;
  const BenchJob& job_;
  ShiftComparison& comparison_;
  MeteredRunner meter_;
  PromptMaterial material_ = {.vocab = 0, .terms = {}, .corpus = {}, .text = {}, .from_file = {}};
  SteadyTimer timer_;
};

std::string phase_text(const ShiftPhase& phase) {
  return fmt::format("{} of {}+{} tokens", counted(phase.requests, "request"), phase.prompt_tokens,
                     phase.answer_tokens);
}

void print(const ShiftComparison& comparison, const Session& session, const BenchSetting& setting,
           const std::string& format) {
  RowOutput output(format);
  for (Json row : shift_rows(comparison)) {
    row["build_commit"] = setting.build_commit;
    row["cpu_info"] = setting.cpu;
    row["gpu_info"] = setting.gpu;
    row["model_filename"] = setting.model_filename;
    row["model_type"] = setting.model_type;
    row["chunk_tokens"] = setting.chunk_tokens;
    row["pool_bytes"] = session.memory().pool_bytes();
    output.add(std::move(row));
  }
  output.finish();
  if (!is_for_people(format)) return;
  write_stdout(fmt::format(
      "{}\n{}; chunks of {}, pools of {}, without prefix reuse\n{} by turns: "
      "{}, then {}\n\n{}\n{}",
      model_text(setting), machine_text(setting), counted(setting.chunk_tokens, "token"),
      bytes_text(session.memory().pool_bytes()), ElasticShift::rounds,
      phase_text(comparison.shift.phases[0]), phase_text(comparison.shift.phases[1]),
      markdown_text(shift_table(comparison)), shift_verdict(comparison)));
}

}  // namespace

int measure_shift(const BenchJob& job) {
  const std::vector<double> shares = shares_of(job.bench);
  const Environment environment = read_environment();
  ProgressLine progress(environment);
  progress.show("loading " + job.model.model);
  RunSettings settings = settings_for(job, environment);
  const bool has_probe = make_room_for_probe(settings);
  Session session = open_session(job, settings);
  ShiftComparison comparison = {
      .shift = elastic_shift(session.memory().pools.layout,
                             {.state_share_max = *std::max_element(shares.begin(), shares.end()),
                              .length_max = session.memory().length_max,
                              .sequences_max = sequences_limit,
                              .scale_down = job.bench.scale_down}),
      .settings = {{.state_share = {}, .phases = {}}}};
  for (const double share : shares) {
    comparison.settings.push_back({.state_share = share, .phases = {}});
  }
  Probes probes(session.queue(), session.model().geometry.load.activation, has_probe);
  ShiftBench bench(session, job, comparison);
  progress.clear();
  progress.show("warming up");
  const std::int32_t repetitions = job.bench.repetitions > 0 ? job.bench.repetitions : 3;
  const std::size_t count = comparison.settings.size();
  bool go_on = bench.warm_up();
  // Each repetition begins with the next setting: what drifts in the machine meets all alike.
  for (std::int32_t i = 0; i < repetitions && go_on; ++i) {
    probes.run();
    for (std::size_t at = 0; at < count && go_on; ++at) {
      ShiftSetting& setting = comparison.settings[(at + static_cast<std::size_t>(i)) % count];
      progress.show(fmt::format("repetition {} of {}: {}", i + 1, repetitions, setting.name()));
      go_on = bench.measure(setting, i);
    }
  }
  comparison.ceilings = probes.best();
  progress.clear();
  if (!go_on) return 0;
  print(comparison, session,
        setting_of(session.source(), session.model(), session.queue(),
                   session.memory().chunk_tokens, job.version),
        job.bench.output);
  return 0;
}

}  // namespace hyb::app
