#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/bench/card_report.h"
#include "app/bench/request_report.h"
#include "app/bench/row_text.h"

namespace hyb::app {
namespace {

/// mean_ttft_ms, median_ttft_ms, std_ttft_ms, p99_ttft_ms, ...
void add(Json& json, const std::string& name, const Distribution& values,
         std::span<const double> percentages) {
  json["mean_" + name] = values.mean;
  json["median_" + name] = values.median;
  json["std_" + name] = values.deviation;
  for (std::size_t i = 0; i < percentages.size(); ++i) {
    json[fmt::format("p{:g}_{}", percentages[i], name)] = values.percentiles[i];
  }
}

void add_experiment(Json& json, const WorkloadSetting& setting, const RequestRow& row) {
  const RequestCase& test = row.test;
  json.update(
      Json({{"date", row.started},
            {"endpoint_type", "hyb"},
            {"model_id", setting.model.model_filename},
            {"dataset_name", name_of(test.dataset)},
            {"workload", test.workload()},
            {"condition", name_of(test.condition)},
            {"experiment", test.experiment()},
            {"policy", test.policy},
            {"num_prompts", test.prompts},
            {"groups", test.groups},
            {"system_prompt_len", test.system_tokens},
            {"input_len", test.input_tokens},
            {"output_len", test.output_tokens},
            {"max_concurrency", test.concurrency > 0 ? Json(test.concurrency) : Json(nullptr)},
            {"request_rate", std::isinf(test.request_rate) ? Json("inf") : Json(test.request_rate)},
            {"burstiness", setting.burstiness},
            {"ignore_eos", setting.ignore_eos},
            {"seed", setting.seed},
            {"graphs", test.graphs},
            {"note", setting.note},
            {"status", row.status}}));
}

void add_metrics(Json& json, const WorkloadSetting& setting, const RequestMetrics& all) {
  json.update(Json(
      {{"duration", all.duration_s},
       {"completed", all.completed},
       {"failed", all.failed},
       {"total_input_tokens", all.input_tokens},
       {"total_output_tokens", all.output_tokens},
       {"request_throughput", number_or_null(all.request_throughput)},
       {"request_goodput", setting.metrics.goals.any() ? Json(all.request_goodput) : Json(nullptr)},
       {"output_throughput", number_or_null(all.output_throughput)},
       {"total_token_throughput", number_or_null(all.total_token_throughput)},
       {"max_output_tokens_per_s", all.output_tokens_per_s_max},
       {"max_concurrent_requests", all.requests_at_once_max}}));
  const std::vector<double>& percentages = setting.metrics.percentages;
  add(json, "ttft_ms", all.ttft_ms, percentages);
  add(json, "tpot_ms", all.tpot_ms, percentages);
  add(json, "itl_ms", all.itl_ms, percentages);
  add(json, "e2el_ms", all.e2el_ms, percentages);
  add(json, "client_queue_ms", all.client_queue_ms, percentages);
  add(json, "engine_queue_ms", all.engine_queue_ms, percentages);
  json.update(Json({{"reused_tokens", all.reused_tokens},
                    {"prefilled_tokens", all.prefilled_tokens},
                    {"recomputed_tokens", all.recomputed_tokens},
                    {"hit_rate", all.hit_rate()}}));
}

void add_machine(Json& json, const WorkloadSetting& setting, const RequestRow& row) {
  const EngineEvents events = events_of(row);
  json.update(Json({{"steps", events.steps},
                    {"failed_steps", events.failed_steps},
                    {"flips", events.flips},
                    {"superblocks_grown", events.grown},
                    {"units_compacted", events.compacted},
                    {"snapshots_taken", events.snapshots},
                    {"snapshots_resumed", events.resumes},
                    {"evictions", events.evictions},
                    {"preemptions", events.preemptions},
                    {"deferrals", events.deferrals},
                    {"prefix_waits", events.prefix_waits},
                    {"graph_captures", events.graph_captures},
                    {"graph_replays", events.graph_replays}}));
  const Achieved achieved = achieved_of(row);
  json.update(Json({{"bytes_per_s", number_or_null(achieved.bytes_per_s)},
                    {"probe_bytes_per_s", number_or_null(row.ceilings.bytes_per_s)},
                    {"flops_per_s", number_or_null(achieved.flops_per_s)},
                    {"probe_flops_per_s", number_or_null(row.ceilings.flops_per_s)},
                    {"roofline_share", number_or_null(achieved.roofline_share)},
                    {"runner_share", number_or_null(achieved.runner_share)}}));
  std::size_t page_bytes = 0;
  for (const PoolUsage::Group& group : row.fullest.groups) page_bytes += group.pages.bytes;
  json.update(
      Json({{"memory_weights", setting.weight_bytes},
            {"memory_workspace", setting.workspace_bytes},
            {"memory_pages", page_bytes},
            {"memory_states", row.fullest.live_slots.bytes},
            {"memory_snapshots", row.fullest.snapshot_slots.bytes + row.fullest.packed.bytes},
            {"memory_idle", row.fullest.idle_bytes + row.fullest.remainder_bytes},
            {"memory_free", row.fullest.free_bytes}}));
}

/// Figures of each repetition, and of each request of all of them.
void add_samples(Json& json, const RequestRow& row) {
  std::vector<double> rates;
  Json durations = Json::array(), requests = Json::array(), outputs = Json::array(),
       totals = Json::array(), ttft_means = Json::array(), tpot_means = Json::array(),
       e2el_means = Json::array();
  Json input_lens = Json::array(), output_lens = Json::array(), ttfts = Json::array(),
       itls = Json::array(), starts = Json::array(), e2els = Json::array(), errors = Json::array(),
       reused = Json::array();
  for (const Repetition& one : row.repetitions) {
    rates.push_back(one.metrics.output_throughput);
    durations.push_back(one.metrics.duration_s);
    requests.push_back(one.metrics.request_throughput);
    outputs.push_back(one.metrics.output_throughput);
    totals.push_back(one.metrics.total_token_throughput);
    ttft_means.push_back(one.metrics.ttft_ms.mean);
    tpot_means.push_back(one.metrics.tpot_ms.mean);
    e2el_means.push_back(one.metrics.e2el_ms.mean);
    for (const RequestRecord& record : one.records) {
      const bool is_answered = record.is_answered();
      input_lens.push_back(record.prompt_tokens);
      output_lens.push_back(record.token_s.size());
      starts.push_back(record.started_s);
      ttfts.push_back(is_answered ? record.ttft_s() : 0);
      e2els.push_back(is_answered ? record.e2el_s() : 0);
      reused.push_back(record.usage.reused_tokens);
      errors.push_back(record.error);
      Json gaps = Json::array();
      for (std::size_t i = 1; i < record.token_s.size(); ++i) {
        gaps.push_back(record.token_s[i] - record.token_s[i - 1]);
      }
      itls.push_back(std::move(gaps));
    }
  }
  json.update(Json({{"repetitions", row.repetitions.size()},
                    {"output_throughput_sd", statistics_of(rates).deviation},
                    {"durations", std::move(durations)},
                    {"request_throughputs", std::move(requests)},
                    {"output_throughputs", std::move(outputs)},
                    {"total_token_throughputs", std::move(totals)},
                    {"ttft_means_ms", std::move(ttft_means)},
                    {"tpot_means_ms", std::move(tpot_means)},
                    {"e2el_means_ms", std::move(e2el_means)},
                    {"input_lens", std::move(input_lens)},
                    {"output_lens", std::move(output_lens)},
                    {"start_times", std::move(starts)},
                    {"ttfts", std::move(ttfts)},
                    {"itls", std::move(itls)},
                    {"e2els", std::move(e2els)},
                    {"reused", std::move(reused)},
                    {"errors", std::move(errors)}}));
}

}  // namespace

Json request_row_json(const WorkloadSetting& setting, const RequestRow& row) {
  Json json = Json::object();
  add_experiment(json, setting, row);
  add_metrics(json, setting, pooled_metrics(row, setting.metrics));
  add_machine(json, setting, row);
  json.update(Json(setting_json(setting.model)));
  json["device"] = setting.model.device;
  json.update(card_json(card_of(row), json["total_output_tokens"].get<std::int64_t>()));
  add_samples(json, row);
  return json;
}

}  // namespace hyb::app
