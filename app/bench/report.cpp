#include "app/bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/bench/card_watch.h"
#include "app/bench/statistics.h"
#include "app/request/answer.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }

void RowOutput::add(Json row) {
  if (format_ == "jsonl") write_stdout(to_text(row) + '\n');
  rows_.push_back(std::move(row));
}

void RowOutput::finish() const {
  if (format_ == "json") write_stdout(pretty_json(rows_));
}

namespace {

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : to_text(value);
}

/// One thing to say of a row: every format is a loop over such fields. JSON has those with a value,
/// in their order; texts and tables list the keys of those they show.
struct RowField {
  RowField(std::string name, Json held) : key(std::move(name)), value(std::move(held)) {}

  /// For people only: no value in JSON.
  explicit RowField(std::string name) : RowField(std::move(name), Json(Json::value_t::discarded)) {}

  RowField line(std::string its_label, std::optional<std::string> text = {}) && {
    label = std::move(its_label);
    label_text = text ? *std::move(text) : shown_value();
    return std::move(*this);
  }
  RowField column(std::string its_title, std::optional<std::string> text = {}) && {
    title = {std::move(its_title), Align::left};
    cell = text ? *std::move(text) : shown_value();
    return std::move(*this);
  }
  /// A column whose cells end below each other.
  RowField numbers(std::string its_title, std::optional<std::string> text = {}) && {
    RowField field = std::move(*this).column(std::move(its_title), std::move(text));
    field.title.align = Align::right;
    return field;
  }

  std::string shown_value() const {
    if (value.is_null()) return "";
    return value.is_number_float() ? fmt::format("{:.2f}", value.get<double>()) : text_of(value);
  }

  std::string key;
  Json value;
  std::string label, label_text;  ///< of its line; no text: no line
  Column title;
  std::string cell;
};

using RowFields = std::vector<RowField>;

void append(RowFields& fields, RowFields more) {
  std::move(more.begin(), more.end(), std::back_inserter(fields));
}

void append(RowFields& fields, const Json& object) {
  for (const auto& [key, value] : object.items()) fields.emplace_back(key, value);
}

const RowField& field_of(const RowFields& fields, std::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const RowField& field) { return field.key == key; });
  require(found != fields.end(), "bench: what a table or a text shows is a field of the row");
  return *found;
}

Json json_of(RowFields fields) {
  Json json = Json::object();
  for (RowField& field : fields) {
    if (!field.value.is_discarded()) json[std::move(field.key)] = std::move(field.value);
  }
  return json;
}

/// Makes a table of `rows`; `all`, or `rows`, decides which columns there are. Of `columns`, KEY?
/// is left out where all cells are empty, KEY?TEXT where all are TEXT, and KEY?? where all are the
/// same.
Table table_of(std::span<const RowFields> rows, std::string_view columns,
               std::span<const RowFields> all = {}) {
  Table table;
  if (rows.empty()) return table;
  if (all.empty()) all = rows;
  table.rows.resize(rows.size());
  for (const std::string_view column : words_of(columns)) {
    const std::string_view key = column.substr(0, column.find('?'));
    const auto cell = [&](const RowFields& row) { return field_of(row, key).cell; };
    if (column.size() > key.size()) {
      const std::string_view usual = column.substr(key.size() + 1);
      const std::string same = usual == "?" ? cell(all.front()) : std::string(usual);
      if (std::ranges::all_of(all, [&](const auto& row) { return cell(row) == same; })) continue;
    }
    table.columns.push_back(field_of(rows.front(), key).title);
    for (std::size_t i = 0; i < rows.size(); ++i) table.rows[i].push_back(cell(rows[i]));
  }
  return table;
}

std::string share_text(double value, double whole) {
  return value > 0 && whole > 0 ? fmt::format("{:.1f} %", 100 * value / whole) : "-";
}

std::string mean_text(const Statistics& statistics) {
  return fmt::format("{:.2f} ± {:.2f}", statistics.mean, statistics.deviation);
}

/// Under llama-bench's keys.
RowFields setting_fields(const BenchSetting& setting) {
  const std::string backend = fmt::format("{} {}", setting.device, setting.isa);
  return {
      RowField("build_commit", setting.build_commit),
      RowField("cpu_info", setting.cpu),
      RowField("gpu_info", setting.gpu),
      RowField("cublaslt", setting.cublaslt),
      RowField("backends", backend).column("backend"),
      RowField("model_filename", setting.model_filename),
      RowField("model_type", setting.model_type).column("model"),
      RowField("model_size", setting.model_bytes).numbers("size", bytes_text(setting.model_bytes)),
      RowField("model_n_params", setting.parameters)
          .numbers("params", parameters_text(setting.parameters)),
      RowField("n_batch", setting.chunk_tokens),
      RowField("n_ubatch", setting.chunk_tokens),
      RowField("n_threads", setting.threads).numbers("threads"),
      RowField("type_k", setting.kv_dtype)
          .column("type_kv", setting.has_own_kv_dtype ? setting.kv_dtype : ""),
      RowField("type_v", setting.kv_dtype)};
}

/// Returns the rates that were achieved, each next to its probe.
RowFields rate_fields(double bytes_per_s, double flops_per_s, const Ceilings& ceilings) {
  const auto giga = [](double per_s, int digits) {
    return per_s > 0 ? fmt::format("{:.{}f}", per_s / 1e9, digits) : "-";
  };
  return {
      RowField("bytes_per_s", number_or_null(bytes_per_s)).numbers("GB/s", giga(bytes_per_s, 2)),
      RowField("probe_bytes_per_s", number_or_null(ceilings.bytes_per_s))
          .numbers("of read probe", share_text(bytes_per_s, ceilings.bytes_per_s)),
      RowField("flops_per_s", number_or_null(flops_per_s)).numbers("GFLOP/s", giga(flops_per_s, 1)),
      RowField("probe_flops_per_s", number_or_null(ceilings.flops_per_s))
          .numbers("of FLOP probe", share_text(flops_per_s, ceilings.flops_per_s))};
}

RowFields kernel_fields(const BenchSetting& setting, const Measurement& row) {
  const BenchCase& test = row.test;
  std::vector<double> times, rates;
  for (const std::int64_t elapsed : row.samples_ns) {
    times.push_back(static_cast<double>(elapsed));
    rates.push_back(static_cast<double>(test.tokens()) * 1e9 / static_cast<double>(elapsed));
  }
  const Statistics time = statistics_of(times), rate = statistics_of(rates);
  const double per_token = rate.mean / static_cast<double>(test.tokens());
  RowFields fields = setting_fields(setting);
  append(fields,
         {RowField("test").numbers("test", test.name()), RowField("n_prompt", test.prompt),
          RowField("n_gen", test.generate), RowField("n_depth", test.depth),
          RowField("test_time", row.started), RowField("avg_ns", std::llround(time.mean)),
          RowField("stddev_ns", std::llround(time.deviation)),
          RowField("avg_ts", rate.mean).numbers("t/s", row.is_measured() ? mean_text(rate) : "-"),
          RowField("stddev_ts", rate.deviation), RowField("samples_ns", row.samples_ns),
          RowField("samples_ts", rates), RowField("batch", test.batch).numbers("batch"),
          RowField("depth", test.depth), RowField("device", setting.device),
          RowField("graphs", graphs_text(test.graphs)).column("graphs")});
  append(fields, rate_fields(row.work.bytes * per_token, row.work.flops * per_token, row.ceilings));
  fields.push_back(RowField("status", row.status).column("status"));
  append(fields, card_json(row.card, test.tokens() * std::ssize(row.samples_ns)));
  return fields;
}

constexpr std::string_view kernel_columns =
    "model_type model_size model_n_params backends n_threads type_k? batch?1 graphs?? test avg_ts "
    "bytes_per_s probe_bytes_per_s flops_per_s probe_flops_per_s status?ok";

RowFields experiment_fields(const WorkloadSetting& setting, const RequestRow& row) {
  const RequestCase& test = row.test;
  const bool has_rate = !std::isinf(test.request_rate);
  const bool has_lane = setting.model.prefill_threads > 0;
  const std::string condition(name_of(test.condition));
  return {RowField("date", row.started),
          RowField("endpoint_type", "hyb"),
          RowField("model_id", setting.model.model_filename),
          RowField("dataset_name", name_of(test.dataset)),
          RowField("workload", test.workload()).line("Workload:").column("workload"),
          RowField("condition", condition)
              .line("Prefixes:", condition + (test.policy.empty() ? "" : ", " + test.policy))
              .column("prefixes"),
          RowField("experiment", test.experiment()).line("Experiment:").column("experiment"),
          RowField("policy", test.policy).column("policy"),
          RowField("num_prompts", test.prompts).column("prompts"),
          RowField("groups", test.groups),
          RowField("system_prompt_len", test.system_tokens),
          RowField("input_len", test.input_tokens),
          RowField("output_len", test.output_tokens),
          RowField("max_concurrency", test.concurrency > 0 ? Json(test.concurrency) : Json())
              .line("Maximum request concurrency:"),
          RowField("request_rate", has_rate ? Json(test.request_rate) : Json("inf"))
              .line("Request rate configured (RPS):",
                    has_rate ? fmt::format("{:.2f}", test.request_rate) : ""),
          RowField("burstiness", setting.burstiness),
          RowField("ignore_eos", setting.ignore_eos),
          RowField("seed", setting.seed),
          RowField("graphs", graphs_text(test.graphs)).line("CUDA graphs:").column("graphs"),
          RowField("spec_acceptance", test.spec_acceptance)
              .line("Drafts made right:")
              .column("drafts right"),
          RowField("lanes", has_lane ? disaggregated_lanes : colocated_lanes)
              .line("Lanes:", has_lane ? "disaggregated; achieved figures are those of the lane of "
                                         "answers"
                                       : test.lanes)
              .column("lanes"),
          RowField("n_threads_prefill", setting.model.prefill_threads),
          RowField("note", setting.note).line("Note:"),
          RowField("status", row.status)
              .line("Status:", row.status == "ok" ? "" : row.status)
              .column("status")};
}

/// mean_ttft_ms, median_ttft_ms, std_ttft_ms, p99_ttft_ms, ...
RowFields latency_fields(const Latency& latency, const RequestMetrics& all,
                         std::span<const double> percentages) {
  const Distribution& figures = all.*latency.figures;
  const auto field = [&](const std::string& kind, double value) {
    return RowField(fmt::format("{}_{}", kind, latency.key), value);
  };
  RowFields fields = {field("mean", figures.mean).line(fmt::format("Mean {} (ms):", latency.name)),
                      field("median", figures.median)
                          .line(fmt::format("Median {} (ms):", latency.name))
                          .numbers(fmt::format("{} ms", latency.name),
                                   fmt::format("{:.{}f}", figures.median, latency.digits)),
                      field("std", figures.deviation)};
  for (std::size_t i = 0; i < percentages.size(); ++i) {
    const std::string kind = fmt::format("{:g}", percentages[i]);
    fields.push_back(field("p" + kind, figures.percentiles[i])
                         .line(fmt::format("P{} {} (ms):", kind, latency.name)));
    if (!figures.can_tell(percentages[i])) fields.back().label_text = "-";
  }
  return fields;
}

RowFields metric_fields(const WorkloadSetting& setting, const RequestRow& row,
                        const RequestMetrics& all) {
  std::vector<double> rates;
  for (const Repetition& one : row.repetitions) rates.push_back(one.metrics.output_throughput);
  const Statistics spread = statistics_of(rates);
  const std::size_t requests = row.repetitions.empty() ? 0 : row.repetitions.front().records.size();
  const bool has_goals = setting.metrics.goals.any();
  const auto rate = [](double value) { return fmt::format("{:.2f}", value); };
  RowFields fields = {
      RowField("duration", all.duration_s).line("Benchmark duration (s):"),
      RowField("completed", all.completed)
          .line("Successful requests:")
          .numbers("requests", fmt::format("{}/{}", all.completed, all.completed + all.failed)),
      RowField("failed", all.failed).line("Failed requests:"),
      RowField("requests_per_repetition")
          .line("Requests per repetition:", std::to_string(requests))
          .numbers("prompts x reps", fmt::format("{} x {}", requests, rates.size())),
      RowField("output_throughput_spread")
          .line("Repetitions (out tok/s):", fmt::format("{}: {}", rates.size(), mean_text(spread))),
      RowField("total_input_tokens", all.input_tokens).line("Total input tokens:"),
      RowField("total_output_tokens", all.output_tokens).line("Total generated tokens:"),
      RowField("request_throughput", number_or_null(all.request_throughput))
          .line("Request throughput (req/s):", rate(all.request_throughput))
          .numbers("req/s", rate(all.request_throughput)),
      RowField("request_goodput", has_goals ? Json(all.request_goodput) : Json())
          .line("Request goodput (req/s):"),
      RowField("output_throughput", number_or_null(all.output_throughput))
          .line("Output token throughput (tok/s):", rate(all.output_throughput))
          .numbers("out tok/s",
                   rate(all.output_throughput) +
                       (rates.size() > 1 ? fmt::format(" ± {:.2f}", spread.deviation) : "")),
      RowField("total_token_throughput", number_or_null(all.total_token_throughput))
          .line("Total token throughput (tok/s):", rate(all.total_token_throughput))
          .numbers("total tok/s", rate(all.total_token_throughput)),
      RowField("max_output_tokens_per_s", all.output_tokens_per_s_max)
          .line("Peak output token throughput (tok/s):"),
      RowField("output_tokens_per_s_per_user", number_or_null(tokens_per_s_of_user(all))),
      RowField("max_concurrent_requests", all.requests_at_once_max)
          .line("Peak concurrent requests:", fmt::format("{}.00", all.requests_at_once_max))};
  for (const Latency& latency : latencies) {
    append(fields, latency_fields(latency, all, setting.metrics.percentages));
  }
  const std::string hits = fmt::format("{:.1f} %", 100 * all.hit_rate());
  append(fields, {RowField("reused_tokens", all.reused_tokens)
                      .line("Prompt tokens reused, prefilled:",
                            fmt::format("{}, {} (hit rate {})", all.reused_tokens,
                                        all.prefilled_tokens, hits)),
                  RowField("prefilled_tokens", all.prefilled_tokens),
                  RowField("recomputed_tokens", all.recomputed_tokens),
                  RowField("hit_rate", all.hit_rate()).numbers("hit rate", hits)});
  return fields;
}

RowFields draft_fields(const SpeculationStats& stats) {
  const DraftCounts counts = stats.total();
  const bool has_some = counts.steps > 0;
  return {RowField("verify_steps", counts.steps),
          RowField("accepted_drafts", counts.accepted),
          RowField("rejected_drafts", counts.rejected),
          RowField("acceptance_length", has_some ? Json(counts.acceptance_length()) : Json())
              .line("Speculation:", has_some ? drafts_text(stats) : "")
              .numbers("accept length"),
          RowField("acceptance_by_position", stats.accepted_shares()),
          RowField("branches_taken", stats.branches_taken),
          RowField("drafting_seconds", stats.drafting_seconds)};
}

RowFields event_fields(const EngineEvents& events) {
  RowFields fields;
  std::string text;
  for (const EngineEvent& event : engine_events) {
    const std::int64_t count = events.*event.count;
    fields.emplace_back(event.key, count);
    if (count > 0 || text.empty()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", event.name, count);
    }
  }
  fields.push_back(RowField("events").line("Events:", text));
  return fields;
}

RowFields memory_fields(const WorkloadSetting& setting, const PoolUsage& usage) {
  RowFields fields;
  std::string text;
  for (const auto& [name, bytes] : std::initializer_list<std::pair<const char*, std::size_t>>{
           {"weights", setting.weight_bytes},
           {"workspace", setting.workspace_bytes},
           {"pages", usage.page_bytes()},
           {"states", usage.live_slots.bytes},
           {"snapshots", usage.snapshot_slots.bytes + usage.packed.bytes},
           {"idle", usage.idle_bytes + usage.remainder_bytes}}) {
    fields.emplace_back(fmt::format("memory_{}", name), bytes);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes_text(bytes));
  }
  fields.emplace_back("memory_free", usage.free_bytes);
  fields.push_back(RowField("memory").line("Memory:", text));
  return fields;
}

std::string rate_text(double per_s, double ceiling, const char* unit) {
  std::string text = fmt::format("{:.1f} {}", per_s / 1e9, unit);
  if (ceiling > 0) text += fmt::format(" ({:.1f} % of the probe)", 100 * per_s / ceiling);
  return text;
}

RowFields achieved_fields(const RequestRow& row) {
  const Achieved achieved = achieved_of(row);
  const bool is_probed = row.ceilings.flops_per_s > 0;
  const std::string share = fmt::format("{:.1f} %", 100 * achieved.roofline_share);
  RowFields fields = rate_fields(achieved.bytes_per_s, achieved.flops_per_s, row.ceilings);
  append(fields,
         {RowField("achieved")
              .line("Achieved:",
                    rate_text(achieved.bytes_per_s, row.ceilings.bytes_per_s, "GB/s") + ", " +
                        rate_text(achieved.flops_per_s, row.ceilings.flops_per_s, "GFLOP/s")),
          RowField("roofline_share", number_or_null(achieved.roofline_share))
              .line("Of the roofline:", is_probed ? share : "")
              .numbers("of roofline", is_probed ? share : "-"),
          RowField("runner_share", number_or_null(achieved.runner_share))
              .line("Time in the model:", fmt::format("{:.2f} %", 100 * achieved.runner_share))});
  return fields;
}

/// All but samples. Where prompts have a lane of their own in the session, some rows may have them
/// among answers all the same.
RowFields request_fields(WorkloadSetting setting, const RequestRow& row) {
  if (row.test.lanes == colocated_lanes) setting.model.prefill_threads = 0;
  const RequestMetrics all = pooled_metrics(row, setting.metrics);
  const CardFigures card = card_of(row);
  RowFields fields = experiment_fields(setting, row);
  append(fields, metric_fields(setting, row, all));
  append(fields, draft_fields(speculation_of(row)));
  append(fields, event_fields(events_of(row)));
  append(fields, achieved_fields(row));
  append(fields, memory_fields(setting, row.fullest));
  append(fields, setting_fields(setting.model));
  append(fields, {RowField("device", setting.model.device),
                  RowField("model").line("Model:", model_text(setting.model)),
                  RowField("machine").line("Machine:", machine_text(setting.model)),
                  RowField("card").line("Card:", card_text(card, all.output_tokens))});
  append(fields, card_json(card, all.output_tokens));
  if (row.is_measured()) return fields;
  for (RowField& field : fields) {
    if (field.title.align == Align::right) field.cell = "-";
  }
  return fields;
}

/// An array in JSON: a value of each repetition, or of each request of all of them.
template <typename Of>
struct SampleArray {
  const char* key;
  Json (*value)(const Of& one);
};

constexpr std::array<SampleArray<Repetition>, 7> repetition_samples = {
    {{"durations", [](const Repetition& one) -> Json { return one.metrics.duration_s; }},
     {"request_throughputs",
      [](const Repetition& one) -> Json { return one.metrics.request_throughput; }},
     {"output_throughputs",
      [](const Repetition& one) -> Json { return one.metrics.output_throughput; }},
     {"total_token_throughputs",
      [](const Repetition& one) -> Json { return one.metrics.total_token_throughput; }},
     {"ttft_means_ms", [](const Repetition& one) -> Json { return one.metrics.ttft_ms.mean; }},
     {"tpot_means_ms", [](const Repetition& one) -> Json { return one.metrics.tpot_ms.mean; }},
     {"e2el_means_ms", [](const Repetition& one) -> Json { return one.metrics.e2el_ms.mean; }}}};

Json gaps_of(const RequestRecord& record) {
  Json gaps = Json::array();
  for (std::size_t i = 1; i < record.token_s.size(); ++i) {
    gaps.push_back(record.token_s[i] - record.token_s[i - 1]);
  }
  return gaps;
}

constexpr std::array<SampleArray<RequestRecord>, 8> request_samples = {
    {{"input_lens", [](const RequestRecord& one) -> Json { return one.prompt_tokens; }},
     {"output_lens", [](const RequestRecord& one) -> Json { return one.token_s.size(); }},
     {"start_times", [](const RequestRecord& one) -> Json { return one.started_s; }},
     {"ttfts",
      [](const RequestRecord& one) -> Json { return one.is_answered() ? one.ttft_s() : 0.0; }},
     {"itls", gaps_of},
     {"e2els",
      [](const RequestRecord& one) -> Json { return one.is_answered() ? one.e2el_s() : 0.0; }},
     {"reused", [](const RequestRecord& one) -> Json { return one.usage.reused_tokens; }},
     {"errors", [](const RequestRecord& one) -> Json { return one.error; }}}};

RowFields sample_fields(const RequestRow& row) {
  std::vector<double> rates;
  for (const Repetition& one : row.repetitions) rates.push_back(one.metrics.output_throughput);
  RowFields fields = {RowField("repetitions", row.repetitions.size()),
                      RowField("output_throughput_sd", statistics_of(rates).deviation)};
  for (const auto& [key, value] : repetition_samples) {
    Json all = Json::array();
    for (const Repetition& one : row.repetitions) all.push_back(value(one));
    fields.emplace_back(key, std::move(all));
  }
  for (const auto& [key, value] : request_samples) {
    Json all = Json::array();
    for (const Repetition& repetition : row.repetitions) {
      for (const RequestRecord& one : repetition.records) all.push_back(value(one));
    }
    fields.emplace_back(key, std::move(all));
  }
  return fields;
}

}  // namespace

Table bench_table(const BenchSetting& setting, std::span<const Measurement> rows) {
  std::vector<RowFields> all;
  for (const Measurement& row : rows) all.push_back(kernel_fields(setting, row));
  return table_of(all, kernel_columns);
}

Json bench_row(const BenchSetting& setting, const Measurement& row) {
  return json_of(kernel_fields(setting, row));
}

Json request_row_json(const WorkloadSetting& setting, const RequestRow& row) {
  RowFields fields = request_fields(setting, row);
  append(fields, sample_fields(row));
  return json_of(std::move(fields));
}

namespace {

std::string rule(const std::string& title, char line) {
  constexpr int width = 50;
  return line == '=' ? fmt::format("{:=^{}}\n", title, width)
                     : fmt::format("{:-^{}}\n", title, width);
}

std::string line_of(const RowField& field) {
  const std::string& text = field.label_text;
  if (text.empty()) return "";
  const bool is_number = text.find_first_not_of("0123456789.") == std::string::npos;
  return fmt::format("{:<40} {:<{}}\n", field.label, text, is_number ? 10 : 0);  // as vLLM pads
}

constexpr std::string_view result_lines =
    "status completed failed max_concurrency request_rate duration total_input_tokens "
    "total_output_tokens request_throughput request_goodput output_throughput "
    "max_output_tokens_per_s max_concurrent_requests total_token_throughput";

constexpr std::string_view condition_lines =
    "model machine workload experiment condition graphs lanes requests_per_repetition "
    "output_throughput_spread reused_tokens spec_acceptance acceptance_length events achieved "
    "roofline_share runner_share card memory note";

constexpr std::string_view request_columns =
    "workload experiment condition graphs?? lanes?? policy? spec_acceptance? acceptance_length? "
    "requests_per_repetition completed request_throughput output_throughput "
    "total_token_throughput median_ttft_ms median_tpot_ms median_itl_ms median_e2el_ms hit_rate "
    "roofline_share status?ok";

}  // namespace

std::string request_row_text(const WorkloadSetting& setting, const RequestRow& row) {
  const RowFields fields = request_fields(setting, row);
  std::string text = rule(" Serving Benchmark Result ", '=');
  for (const std::string_view key : words_of(result_lines)) text += line_of(field_of(fields, key));
  const bool can_queue = !row.test.is_closed_loop() && row.test.concurrency > 0;
  for (const Latency& latency : latencies) {
    if (latency.heading.empty() || (latency.is_of_client && !can_queue)) continue;
    text += rule(std::string(latency.heading), '-');
    for (const RowField& field : fields) {
      if (field.key.ends_with(fmt::format("_{}", latency.key))) text += line_of(field);
    }
  }
  text += rule("Conditions", '-');
  for (const std::string_view key : words_of(condition_lines))
    text += line_of(field_of(fields, key));
  return text + rule("", '=');
}

Table request_table(const WorkloadSetting& setting, std::span<const RequestRow> rows) {
  std::vector<RowFields> all;
  for (const RequestRow& row : rows) all.push_back(request_fields(setting, row));
  return table_of(all, request_columns);
}

namespace {

const RequestRow* none_of(const RequestRow& row, std::span<const RequestRow> rows) {
  const auto setting = [](const RequestCase& test) {
    return std::tuple(test.workload(), test.experiment(), test.condition, test.graphs,
                      test.spec_acceptance, test.prompts);
  };
  for (const RequestRow& other : rows) {
    const bool is_none = other.test.policy == no_policy && other.is_measured();
    if (is_none && setting(other.test) == setting(row.test)) return &other;
  }
  return nullptr;
}

std::string relative(double value, double none) {
  return none > 0 ? fmt::format("{:.1f} ({:.0f} %)", value, 100 * value / none)
                  : fmt::format("{:.1f}", value);
}

/// Fields that compare `row` with `none`.
RowFields relative_fields(const RequestRow& row, const RequestRow& none) {
  const MetricOptions options = {.percentages = {5, 50, 95, 99}, .goals = {}};
  const RequestMetrics here = pooled_metrics(row, options), there = pooled_metrics(none, options);
  const auto field = [&](const char* key, const char* title, Distribution RequestMetrics::*figures,
                         std::size_t i) {
    return RowField(key).numbers(
        title, relative((here.*figures).percentiles[i], (there.*figures).percentiles[i]));
  };
  return {field("relative_ttft_p5", "TTFT P5 ms (of none)", &RequestMetrics::ttft_ms, 0),
          field("relative_ttft_p50", "TTFT P50 ms", &RequestMetrics::ttft_ms, 1),
          field("relative_ttft_p95", "TTFT P95 ms", &RequestMetrics::ttft_ms, 2),
          field("relative_tpot_p99", "TPOT P99 ms", &RequestMetrics::tpot_ms, 3)};
}

constexpr std::string_view policy_columns =
    "workload?? num_prompts?? experiment?? condition?? graphs?? policy hit_rate relative_ttft_p5 "
    "relative_ttft_p50 relative_ttft_p95 relative_tpot_p99";

}  // namespace

Table policy_table(std::span<const RequestRow> rows) {
  std::vector<RowFields> all, compared;
  for (const RequestRow& row : rows) {
    all.push_back(request_fields({}, row));
    const RequestRow* const none = none_of(row, rows);
    if (none == nullptr || none == &row || !row.is_measured()) continue;
    compared.push_back(all.back());
    append(compared.back(), relative_fields(row, *none));
  }
  return table_of(compared, policy_columns, all);
}

}  // namespace hyb::app
