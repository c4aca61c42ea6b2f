#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "app/batch/batch_runner.h"
#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "app/model_source.h"
#include "app/options.h"
#include "app/prompt.h"
#include "app/session.h"
#include "core/base/json.h"

namespace hyb::app {

/// What `hyb batch` takes from its command line.
struct BatchOptions {
  ModelOptions model;
  TierFlags tiers;
  std::optional<double> idle_seconds;  ///< memory not needed for so long goes back to the machine
  GenerationOptions generation;        ///< what lines do not say themselves
  std::string input, output;
  std::optional<LineFormat> format;
  std::string system;
  Think think;
  bool raw = false;
  Truncate truncate = Truncate::refuse;
  std::int32_t parallel = 16;
  BatchOrder order = BatchOrder::depth_first;
  bool ordered = false, retry_failed = false, force = false, strict = false, validate = false;
  int retry_seconds = 30;
};

/// The exit code when results are errors.
inline constexpr int failed_lines_exit = 5;

/// The input, opened and scanned.
InputFile scanned_input(const BatchOptions& options);

/// What the chat template cannot do for any line: Error(model) where there is none for texts,
/// Error(usage) where it obeys no --think.
void check_texts(const BatchOptions& options, const InputFile& input, const ModelSource& source);

/// What holds for all lines. Throws Error(usage) for sampling options out of range.
JobTerms terms_of(const BatchOptions& options, Request defaults, RequestLimits limits);

/// Does what the output does not have yet. Returns the exit code: 0, or 5 when the output holds
/// failed results; a stop by a signal is reported by main. Throws Error(usage) when the output's
/// job file says that it belongs to another job.
int run_batch(const BatchOptions& options);

/// Makes every request without answering it and prints the results of those that fail. Reads no
/// weights. Returns 0 or 5.
int validate_batch(const BatchOptions& options);

/// What a batch job is made of, kept next to the output as OUT.job: a rerun must find the same
/// input, model and settings, or its results would be of another job.
struct JobFile {
  static std::filesystem::path beside(const std::filesystem::path& output);

  /// Nothing when there is none. Throws Error(model) for what is no job file.
  static std::optional<Json> read(const std::filesystem::path& path);

  /// Replaces it at once and durably. Throws Error(runtime).
  static void write(const std::filesystem::path& path, const Json& job);
};

/// The first difference as "temperature is 0.7, was 0.0"; empty: none. Members named "name",
/// "hyb" and "last_run" are for people and not compared.
std::string job_difference(const Json& was, const Json& is);

/// `words` as a line for a POSIX shell.
std::string shell_line(std::span<const std::string> words);

/// The command line of this process without what a rerun must not repeat (--force and
/// --retry-failed).
std::string resume_command();

}  // namespace hyb::app
