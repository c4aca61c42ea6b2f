#include "app/batch/batch_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/ui/progress.h"

namespace hyb::app {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

double per_second(std::int64_t count, std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

std::string summary_text(const BatchReport& report) {
  const BatchCounts& counts = report.counts;
  std::string text =
      fmt::format("{} lines, {} answered now in {}, {:.1f} tokens/s, {} failed", report.lines,
                  counts.done - counts.failed, duration_text(report.time),
                  per_second(counts.tokens, report.time), report.failed);
  if (counts.prompt_tokens == 0) return text + "\n";
  text +=
      fmt::format("; reused {:.1f} % of {} prompt tokens",
                  100 * share(counts.reused_tokens, counts.prompt_tokens), counts.prompt_tokens);
  if (report.is_planned) {
    text += fmt::format(", {:.1f} % are there to be reused",
                        100 * share(report.sharable_tokens, report.planned_tokens));
  }
  if (counts.packed > 0) text += fmt::format("; {} answers from int8 snapshots", counts.packed);
  return text + "\n";
}

Json report_json(const BatchReport& report) {
  const BatchCounts& counts = report.counts;
  Json json = {{"answered", counts.done - counts.failed},
               {"failed", counts.failed},
               {"seconds", std::chrono::duration<double>(report.time).count()},
               {"completion_tokens", counts.tokens},
               {"prompt_tokens", counts.prompt_tokens},
               {"reused_tokens", counts.reused_tokens},
               {"from_int8_snapshots", counts.packed}};
  if (report.is_planned) {
    json["planned_tokens"] = report.planned_tokens;
    json["sharable_tokens"] = report.sharable_tokens;
  }
  return json;
}

}  // namespace hyb::app
