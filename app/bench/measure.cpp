#include "app/bench/measure.h"

#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "app/bench/bench_plots.h"
#include "app/bench/card_watch.h"
#include "app/bench/lane_sweep.h"
#include "app/bench/report.h"
#include "app/bench/request_bench.h"
#include "app/bench/statistics.h"
#include "app/bench/workload.h"
#include "app/machine/environment.h"
#include "app/request/prompt.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/session.h"
#include "app/runtime/trace_file.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/mapped_file.h"
#include "kernels/thread_pool.h"

namespace hyb::app {
namespace {

BareModel open_model(const RunSettings& settings, const std::vector<BenchCase>& cases) {
  const StopAtOnce nothing_to_lose;
  WeightUse use;
  for (const BenchCase& test : cases) use.sequences = std::max(use.sequences, test.batch);
  return open_bare(settings, use);
}

/// -u, or what a session would take.
std::int32_t chunk_tokens_of(const BenchJob& job, const BareModel& model) {
  if (job.bench.chunk_tokens > 0) return job.bench.chunk_tokens;
  return chunk_tokens_of(model.outline.plan, model.outline.geometry, budget_of(model.settings),
                         model.queue.threads());
}

/// The load of the last minute, as uptime shows it; 0: not known.
double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

/// For people: what is the same in all rows, then what was measured.
std::string kernels_text(const BenchSetting& setting, std::span<const Measurement> rows) {
  constexpr std::ptrdiff_t in_head = 5;  // model, size, params, backend and threads
  Table table = bench_table(setting, rows);
  if (table.columns.empty()) return "";
  table.columns.erase(table.columns.begin(), table.columns.begin() + in_head);
  for (auto& row : table.rows) row.erase(row.begin(), row.begin() + in_head);
  return fmt::format("{}\n{}; hyb {}\n\n{}", model_text(setting), machine_text(setting),
                     setting.build_commit, shown_text(table, "text"));
}

void write_plot(const std::string& path, Plot plot, const BenchSetting& setting) {
  plot.notes = {model_text(setting), fmt::format("{}; hyb {}, {}", machine_text(setting),
                                                 setting.build_commit, utc_now())};
  write_atomically(path, svg_text(plot), FileAccess::umask);
}

/// The spread of what `values` gives for each row.
template <typename Rows, typename Values>
std::vector<double> spreads_of(const Rows& rows, Values&& values) {
  std::vector<double> spreads;
  for (const auto& row : rows) {
    const Statistics statistics = statistics_of(values(row));
    spreads.push_back(statistics.mean > 0 ? statistics.deviation / statistics.mean : 0);
  }
  return spreads;
}

}  // namespace

bool is_for_people(std::string_view format) { return format == "text" || format == "md"; }

std::string shown_text(const Table& table, std::string_view format) {
  return format == "md" ? markdown_text(table)
                        : fitted_text(table, text_columns(read_environment()));
}

std::string early_end_text(std::span<const RequestRow> rows) {
  std::int64_t tokens = 0, requested = 0;
  for (const RequestRow& row : rows) {
    if (row.test.dataset == Dataset::file) continue;  // whose lengths are limits
    for (const Repetition& one : row.repetitions) {
      for (const RequestRecord& record : one.records) {
        if (!record.is_answered()) continue;
        tokens += std::ssize(record.token_s);
        requested += record.tokens_requested;
      }
    }
  }
  if (tokens >= requested) return "";
  return fmt::format("answers ended early, with {} of {} tokens; --ignore-eos makes them whole",
                     tokens, requested);
}

std::string doubt_text(std::span<const double> spreads, double load, int processors) {
  constexpr double spread_max = 0.1;
  const auto wide = std::ranges::count_if(spreads, [](double one) { return one > spread_max; });
  const bool is_busy = load > processors / 2.0;
  if (wide == 0 && !is_busy) return "";
  std::string text = "doubtful:";
  if (wide > 0) {
    text += fmt::format(" {} of {} ± over 10 %", wide, counted(std::ssize(spreads), "row"));
  }
  if (is_busy) {
    text += fmt::format("{} load {:.1f} on {} CPUs", wide > 0 ? "," : "", load, processors);
  }
  return text + (is_busy ? "; end other programs\n" : "; repeat more: -r 20\n");
}

namespace {

void print_doubt(std::span<const double> spreads, double load) {
  const std::string doubt = doubt_text(spreads, load, kernels::usable_cpus().count);
  if (!doubt.empty()) write_stdout('\n' + doubt);
}

}  // namespace

int measure_kernels(const BenchJob& job) {
  const double load = load_average();
  const std::vector<BenchCase> cases = kernel_cases(job.bench);
  const Environment environment = read_environment();
  ProgressLine progress(environment);
  progress.show("loading " + job.model.model);
  BareModel model = open_model(resolve(job.model, environment), cases);
  progress.clear();  // the first row is shown however soon it begins
  KernelBenchOptions options = {
      .repetitions = job.bench.repetitions > 0 ? job.bench.repetitions : 5,
      .chunk_tokens = chunk_tokens_of(job, model),
      .length_max = job.model.context,
      .probes_once = model.queue.device() == kernels::Device::cuda};
  const std::unique_ptr<CardMeter> card = options.probes_once ? open_nvml() : nullptr;
  options.card = card.get();
  std::optional<TraceFile> trace;
  if (!job.record.empty()) {
    trace.emplace(job.record, job.model.model);
    options.recorder = &trace->recorder();
  }
  KernelBench bench(model, options);
  if (!bench.has_read_probe()) {
    progress.clear();
    log::warning(
        "no room for the 1 GiB of the read probe within --memory: shares of it are not shown");
  }
  const BenchSetting setting = setting_of(model.settings.source, model.model, model.queue,
                                          options.chunk_tokens, job.version);
  bench.expect(cases);
  RowOutput output(job.bench.output);
  std::vector<Measurement> rows;
  for (std::size_t i = 0; i < cases.size() && stop_signal() == 0; ++i) {
    progress.show(fmt::format("{} of {}: {}", i + 1, cases.size(), cases[i].name()));
    rows.push_back(bench.run(cases[i]));
    progress.clear();
    output.add(bench_row(setting, rows.back()));
  }
  output.finish();
  if (job.bench.output == "md") write_stdout(markdown_text(bench_table(setting, rows)));
  if (job.bench.output == "text") {
    write_stdout(kernels_text(setting, rows));
    const auto spreads = spreads_of(rows, [](const Measurement& row) {
      return std::vector<double>(row.samples_ns.begin(), row.samples_ns.end());
    });
    print_doubt(spreads, load);
  }
  if (!job.bench.svg.empty()) write_plot(job.bench.svg, depth_plot(rows), setting);
  for (const Measurement& row : rows) {
    if (row.is_measured()) return 0;
  }
  const bool has_failed = !rows.empty() && rows.front().failure;
  return static_cast<int>(has_failed ? *rows.front().failure : ErrorKind::memory);
}

namespace {

constexpr const char* usual_prompt =
    "Human: Give me a fully functional FastAPI server. Show the python code.\n\nAssistant:";

std::string note_of(const Session& session, Dataset dataset) {
  const bool is_text =
      dataset == Dataset::corpus || dataset == Dataset::file || dataset == Dataset::send_one;
  const bool is_moe = session.model().plan.has_experts();
  if (session.settings().types.random_weights) {
    return is_moe ? "synthetic weights: answers mean nothing, routing to experts is near uniform"
                  : "synthetic weights: answers mean nothing";
  }
  return is_moe && !is_text ? "random tokens: routing to experts is not as with text" : "";
}

std::vector<Request> requests_of(const std::string& path, const Session& session,
                                 const Engine& engine, const Request& terms) {
  InputFile file = InputFile::open(path, ".");
  file.scan(std::nullopt);
  JobTerms job;
  job.defaults = terms;
  job.limits = {
      .vocab = session.model().plan.vocab, .length_max = engine.length_max(), .has_text = true};
  RequestMaker maker(session.need_tokenizer(), session.chat_template(), std::move(job));
  std::vector<Request> requests;
  for (const InputLine& line : file.lines()) {
    const RequestLine parsed = file.read(line);
    if (parsed.failure) {
      throw Error(ErrorKind::model,
                  fmt::format("{}: line {}: {}", path, line.number, parsed.failure->message));
    }
    requests.push_back(maker.make(parsed).request);
  }
  if (requests.empty()) throw Error(ErrorKind::model, path + ": has no request");
  return requests;
}

std::vector<TokenId> corpus_of(const std::string& path, const Tokenizer& tokenizer) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_utf8(text, path);
  return encode_raw(tokenizer, text, false);
}

PromptMaterial material_of(Session& session, const BenchJob& job, const RequestCase& first) {
  const BenchOptions& options = job.bench;
  const Tokenizer* const tokenizer = session.tokenizer();
  PromptMaterial material = {.vocab = tokenizer != nullptr
                                          ? std::min(tokenizer->size(), session.model().plan.vocab)
                                          : session.model().plan.vocab,
                             .range_ratio = options.range_ratio,
                             .tokenizer = tokenizer,
                             .text = options.text.empty() ? usual_prompt : options.text};
  material.terms.stop_tokens = session.stop_tokens();
  material.terms.ignore_eos = options.ignore_eos || job.model.types.random_weights.has_value();
  if (first.dataset == Dataset::corpus) {
    material.corpus = corpus_of(options.path, session.need_tokenizer());
  } else if (first.dataset == Dataset::file) {
    Request terms = material.terms;
    terms.max_tokens = first.output_tokens;
    material.from_file = requests_of(options.path, session, session.engine(), terms);
  }
  return material;
}

SessionShape shape_of(const BenchJob& job, const std::vector<RequestCase>& cases) {
  constexpr std::int32_t without_limit = 64;
  SessionShape shape = {
      .sequences_max = 1, .chunk_tokens = job.bench.chunk_tokens, .expects_more = true};
  for (const RequestCase& test : cases) {
    const std::int32_t at_once = test.concurrency > 0 ? test.concurrency : without_limit;
    shape.sequences_max = std::max(shape.sequences_max, at_once);
  }
  return shape;
}

Session open_session(const RunSettings& settings, const SessionShape& shape) {
  const StopAtOnce nothing_to_lose;
  return Session::open(settings, shape);
}

RequestBenchOptions bench_options_of(Session& session, const BenchJob& job,
                                     const RequestCase& first, const Environment& environment) {
  const BenchOptions& options = job.bench;
  RequestBenchOptions bench = {.repetitions = job.bench.repetitions > 0 ? job.bench.repetitions : 3,
                               .seed = options.seed,
                               .burstiness = options.burstiness,
                               .question_tokens = options.question_tokens,
                               .warm_up_requests = options.warm_up_requests,
                               .metrics = {.percentages = parse_percentages(options.percentages),
                                           .goals = parse_goals(options.goals)},
                               .material = material_of(session, job, first),
                               .reuse = job.model.reuse,
                               .trace_times = options.trace_times,
                               .scramble = options.scramble};
  if (first.dataset == Dataset::trace) {
    bench.trace = scaled_trace(read_trace(options.path), options.scale_down);
    const models::Geometry& geometry = session.model().geometry;
    bench.predict = options.lab.predictor(
        job.model.model, geometry.pages.empty() ? DType::bf16 : geometry.kv_dtype, environment);
  }
  return bench;
}

WorkloadSetting setting_of(Session& session, const BenchJob& job, const RequestBenchOptions& bench,
                           const RequestCase& first) {
  BenchSetting model = setting_of(session.source(), session.model(), session.queue(),
                                  session.memory().chunk_tokens, job.version);
  if (const std::optional<TwoLanes>& lanes = session.settings().lanes) {
    model.threads = lanes->threads();
    if (lanes->device == kernels::Device::cpu) model.prefill_threads = lanes->prefill.threads;
  }
  return {.model = std::move(model),
          .metrics = bench.metrics,
          .seed = bench.seed,
          .burstiness = bench.burstiness,
          .ignore_eos = bench.material.terms.ignore_eos,
          .weight_bytes = session.memory().weights,
          .workspace_bytes = session.memory().workspace,
          .note = note_of(session, first.dataset)};
}

void print_tables(const WorkloadSetting& setting, std::span<const RequestRow> rows,
                  std::string_view format, double load) {
  write_stdout(shown_text(request_table(setting, rows), format));
  const Table policies = policy_table(rows);
  if (!policies.rows.empty()) write_stdout('\n' + shown_text(policies, format));
  const std::string verdict = lane_sweep_verdict(rows);
  if (!verdict.empty()) write_stdout('\n' + verdict);
  if (format != "text") return;
  const auto spreads = spreads_of(rows, [](const RequestRow& row) {
    std::vector<double> rates;
    for (const Repetition& one : row.repetitions) rates.push_back(one.metrics.output_throughput);
    return rates;
  });
  print_doubt(spreads, load);
  const std::string early = setting.ignore_eos ? "" : early_end_text(rows);
  if (!early.empty()) write_stdout('\n' + early + '\n');
}

/// Holds what a run reports of its cases, and how.
struct ReportContext {
  const WorkloadSetting& setting;
  const std::vector<RequestCase>& cases;
  const std::string& format;
  ProgressLine& progress;
  std::string& title;  ///< of the case that runs
  double load;         ///< of the machine, before all of them
};

std::string title_of(const std::vector<RequestCase>& cases, std::size_t i) {
  const RequestCase& test = cases[i];
  std::string title = fmt::format("{} of {}: {}, {}, {}", i + 1, cases.size(), test.workload(),
                                  test.experiment(), name_of(test.condition));
  if (!test.policy.empty()) title += ", " + test.policy;
  if (varies(cases, [](const RequestCase& one) { return one.graphs; }))
    title += ", " + graphs_text(test.graphs);
  if (!test.lanes.empty()) title += ", " + test.lanes;
  return title;
}

/// Every case. A row is printed as soon as it is measured where the format is made of lines; in
/// turns that is when all are.
std::vector<RequestRow> measure_all(RequestBench& bench, const ReportContext& showing,
                                    bool interleaved) {
  RowOutput output(showing.format);
  std::vector<RequestRow> rows;
  const auto announce = [&](std::size_t i) { showing.title = title_of(showing.cases, i); };
  const auto print = [&](const RequestRow& row) {
    showing.progress.clear();
    output.add(request_row_json(showing.setting, row));
    if (is_for_people(showing.format)) {
      write_stdout(fitted_to(Stream::output, request_row_text(showing.setting, row) + '\n'));
    }
  };
  if (interleaved) {
    rows = bench.run_interleaved(showing.cases, announce);
    for (const RequestRow& row : rows) print(row);
  }
  for (std::size_t i = 0; i < showing.cases.size() && stop_signal() == 0 && !interleaved; ++i) {
    announce(i);
    rows.push_back(bench.run(showing.cases[i], i));
    print(rows.back());
  }
  output.finish();
  if (is_for_people(showing.format)) {
    print_tables(showing.setting, rows, showing.format, showing.load);
  }
  return rows;
}

}  // namespace

bool make_room_for_probe(RunSettings& settings) {
  if (settings.memory.bytes < 4 * Probes::read_bytes) return false;
  settings.set_memory(settings.memory.bytes - Probes::read_bytes);
  return true;
}

int measure_requests(const BenchJob& job) {
  const double load = load_average();
  const std::vector<RequestCase> cases = request_cases(job.bench);
  const Environment environment = read_environment();
  ProgressLine progress(environment);
  progress.show("loading " + job.model.model);
  ModelOptions options = job.model;
  if (job.bench.names_second_lane()) options.lanes = lanes_to_compare(options);
  RunSettings settings = resolve(options, environment);
  const bool has_probe = make_room_for_probe(settings);
  if (!has_probe) {
    progress.clear();
    log::warning(
        "no room for the 1 GiB of the read probe within --memory: shares of it are not shown");
  }
  Session session = open_session(settings, shape_of(job, cases));
  for (const RequestCase& test : cases) {
    if (!test.right_drafts() || session.speculation().is_on) continue;
    throw Error(ErrorKind::usage,
                "--spec-acceptance: here steps have no drafts: leave --spec off out; on a card add "
                "--batch-invariant");
  }
  Probes probes(session.queue(), session.model().geometry.load.activation, has_probe);
  std::optional<TraceFile> trace;
  if (!job.record.empty()) trace.emplace(job.record, job.model.model);
  const bool is_cpu = session.queue().device() == kernels::Device::cpu;
  const std::unique_ptr<CardMeter> card = is_cpu ? nullptr : open_nvml();

  std::string title;
  RequestBenchOptions bench_options = bench_options_of(session, job, cases.front(), environment);
  bench_options.card = card.get();
  bench_options.recorder = trace ? &trace->recorder() : nullptr;
  bench_options.progress = [&](const std::string& text) { progress.show(title + ": " + text); };
  const WorkloadSetting setting = setting_of(session, job, bench_options, cases.front());
  RequestBench bench(session, probes, std::move(bench_options));
  if (is_for_people(job.bench.output)) bench.check_lengths(cases);  // else rows say so
  const std::vector<RequestRow> rows = measure_all(
      bench, {setting, cases, job.bench.output, progress, title, load}, job.bench.interleaved);
  if (!job.bench.svg.empty()) {
    const bool is_trace = cases.front().dataset == Dataset::trace;
    const bool is_sweep = varies(cases, [](const RequestCase& test) { return test.lanes; });
    write_plot(job.bench.svg,
               is_sweep   ? lane_plot(rows)
               : is_trace ? hit_rate_plot(rows)
                          : load_plot(rows),
               setting.model);
  }
  for (const RequestRow& row : rows) {
    if (row.is_measured()) return 0;
  }
  return static_cast<int>(rows.empty() ? ErrorKind::memory : rows.front().failure);
}

}  // namespace hyb::app
