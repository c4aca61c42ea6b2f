#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/bench/bench_job.h"
#include "app/bench/bench_plots.h"
#include "app/bench/nvml_meter.h"
#include "app/bench/report.h"
#include "app/bench/row_text.h"
#include "app/environment.h"
#include "app/trace_file.h"
#include "app/ui/process.h"
#include "app/ui/progress.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/atomic_file.h"

namespace hyb::app {
namespace {

BareModel open_model(const ModelOptions& options, const Environment& environment) {
  const StopAtOnce nothing_to_lose;
  return open_bare(options, environment);
}

}  // namespace

int measure_kernels(const BenchJob& job, const std::vector<BenchCase>& cases) {
  const Environment environment = read_environment();
  ProgressLine progress(environment);
  progress.show("loading " + job.model.model);
  BareModel model = open_model(job.model, environment);
  BenchOptions options = {.repetitions = job.repetitions > 0 ? job.repetitions : 5,
                          .chunk_tokens = job.chunk_tokens,
                          .length_max = job.model.context};
  const std::unique_ptr<CardMeter> card =
      model.queue.device() == kernels::Device::cuda ? open_nvml() : nullptr;
  options.card = card.get();
  std::optional<TraceFile> trace;
  if (!job.record.empty()) {
    trace.emplace(job.record);
    options.recorder = &trace->recorder();
  }
  Bench bench(model, options);
  if (!bench.has_read_probe()) {
    progress.clear();
    log::warning(
        "no room for the 1 GiB of the read probe within --memory: shares of it are not shown");
  }
  const BenchSetting setting = setting_of(model.source, model.outline, model.model, model.queue,
                                          job.chunk_tokens, job.version);
  bench.expect(cases);
  RowOutput output(job.output, "test");
  std::vector<Measurement> rows;
  for (std::size_t i = 0; i < cases.size() && stop_signal() == 0; ++i) {
    progress.show(fmt::format("{} of {}: {}", i + 1, cases.size(), cases[i].name()));
    rows.push_back(bench.run(cases[i]));
    progress.clear();
    output.add(bench_row(setting, rows.back()));
  }
  output.finish();
  if (job.output == "md") write_stdout(markdown_text(bench_table(setting, rows)));
  if (!job.svg.empty()) write_atomically(job.svg, svg_text(depth_plot(rows)));
  for (const Measurement& row : rows) {
    if (row.is_measured()) return 0;
  }
  const bool has_failed = !rows.empty() && rows.front().failure;
  return static_cast<int>(has_failed ? *rows.front().failure : ErrorKind::memory);
}

}  // namespace hyb::app
