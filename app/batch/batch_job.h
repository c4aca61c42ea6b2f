#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/batch/batch_runner.h"
#include "app/batch/input_file.h"
#include "app/batch/parts.h"
#include "app/batch/request_maker.h"
#include "app/model/model_source.h"
#include "app/options/options.h"
#include "app/request/prompt.h"
#include "app/request/sampling_options.h"
#include "app/request/template_probe.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/tiers.h"

namespace hyb::app {

/// Options of `hyb batch`.
struct BatchOptions {
  ModelOptions model;
  TierFlags tiers;
  std::optional<double> idle_seconds;  ///< memory not needed for so long goes back to the machine
  GenerationOptions generation;        ///< what lines do not say themselves
  std::string input, output;
  std::optional<LineFormat> format;
  ResultFormat output_format = ResultFormat::jsonl;  ///< others: `ordered`, and nothing is forced
  std::optional<std::string> prompt_template;        ///< as LineTemplate
  std::string system;
  Think think;
  Json tools = nullptr;  ///< of lines that are chats and have none
  bool raw = false, allow_special = false;
  std::vector<std::string> ignored;  ///< fields of bodies
  std::optional<Part> part;          ///< of the input's lines; none: all
  Truncate truncate = Truncate::refuse;
  std::int32_t parallel = 16;
  BatchOrder order = BatchOrder::depth_first;
  bool ordered = false, retry_failed = false, force = false, validate = false;
  bool verbose = false;  ///< the last line says what was reused and guessed, too
  int retry_seconds = 30;
};

/// The exit code when results are errors.
inline constexpr int failed_lines_exit = 5;

/// The shape of the session that answers the lines.
SessionShape shape_of(const BatchOptions& options);

/// The input, opened and scanned.
InputFile scanned_input(const BatchOptions& options);

/// Throws for what the chat template cannot do for any line: Error(model) where there is no
/// template for texts, Error(usage) where it does not obey --think.
void check_texts(const BatchOptions& options, const InputFile& input, const ModelSource& source);

/// Returns what holds for all lines. Throws Error(usage) for sampling options out of range.
JobTerms terms_of(const BatchOptions& options, Request defaults, RequestLimits limits);

/// Does what the output does not have yet. Returns the exit code: 0, or 5 when the output holds
/// failed results, or 1 when stdout takes results and lost its reader; a stop by a signal is
/// reported by main. Throws Error(usage) when the output's job file says that it belongs to another
/// job, and when --ordered can't be kept.
int run_batch(const BatchOptions& options);

/// Makes every request without answering it and prints the results of those that fail. Reads no
/// weights. Returns 0 or 5.
int validate_batch(const BatchOptions& options);

/// `words` as a line for a POSIX shell.
std::string shell_line(std::span<const std::string> words);

/// The command line of this process without what a rerun must not repeat: --retry-failed, and
/// --force unless the output has lines that only --force skips.
std::string resume_command(bool keeps_force);

bool is_stdout(const std::string& output);

}  // namespace hyb::app
