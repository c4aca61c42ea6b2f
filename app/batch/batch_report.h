#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "app/batch/batch_runner.h"
#include "core/base/json.h"

namespace hyb::app {

/// What one run of a job came to.
struct BatchReport {
  BatchCounts counts;
  std::int64_t lines = 0;   ///< of the input
  std::int64_t failed = 0;  ///< results that are errors, of all runs
  std::chrono::nanoseconds time{0};
  bool is_planned = false;           ///< the two below are known: lines ran depth first
  std::int64_t planned_tokens = 0;   ///< of the prompts that were planned
  std::int64_t sharable_tokens = 0;  ///< of these, what a prompt run before had too
};

/// The last line of a run that did all there was to do, with its line break.
std::string summary_text(const BatchReport& report);

/// The same for programs: `last_run` of the job file.
Json report_json(const BatchReport& report);

}  // namespace hyb::app
