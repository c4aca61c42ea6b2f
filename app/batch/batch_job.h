#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/batch/batch_runner.h"
#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "app/model_source.h"
#include "app/options.h"
#include "app/prompt.h"
#include "app/sampling_options.h"
#include "app/session.h"
#include "app/template_probe.h"
#include "app/weight_hashes.h"
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
  bool raw = false, allow_special = false;
  std::vector<std::string> ignored;  ///< fields of bodies
  Truncate truncate = Truncate::refuse;
  std::int32_t parallel = 16;
  BatchOrder order = BatchOrder::depth_first;
  bool ordered = false, retry_failed = false, force = false, validate = false;
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
/// failed results, or 1 when stdout takes results and lost its reader; a stop by a signal is
/// reported by main. Throws Error(usage) when the output's job file says that it belongs to another
/// job, and when --ordered can't be kept.
int run_batch(const BatchOptions& options);

/// Makes every request without answering it and prints the results of those that fail. Reads no
/// weights. Returns 0 or 5.
int validate_batch(const BatchOptions& options);

/// What a batch job is made of, kept next to the output as OUT.job: a rerun must find the same
/// input, model and settings, or its results would be of another job.
///
/// The model is every byte of its files. Small files are hashed at once, the weights by
/// WeightHashes: from its cache, else in the background. A rerun does not wait for that:
/// - Weight files with the stamps (size, inode, times) that the job file has are the same files.
/// - Where stamps differ, as after a copy, the answers of the rerun wait in memory until all bytes
///   are read. Other bytes end it before it writes anything, and the job file stays as it was.
/// - Where a first run ended before it had read the weights, and stamps differ, nothing shows that
///   they are the same: refused.
struct JobFile {
  static std::filesystem::path beside(const std::filesystem::path& output);

  /// Nothing when there is none. Throws Error(model) for what is no job file.
  static std::optional<Json> read(const std::filesystem::path& path);

  /// Replaces it at once and durably. Throws Error(runtime).
  static void write(const std::filesystem::path& path, const Json& job);
};

/// All differences in words, as "--temperature is 0.7, was not given"; empty: none. Weight files
/// are left to weights_difference() as long as the samples in both jobs are the same. Names,
/// versions and "last_run" are for people and not compared.
std::string job_difference(const Json& was, const Json& is);

/// "model"."weights" of a job file.
Json weights_json(const std::vector<WeightHashes::File>& files);

struct WeightsDifference {
  std::string text;         ///< in words; empty: none that is known
  bool is_pending = false;  ///< a file must be read first
};

/// Of two weights_json(); nothing where one is null: random weights, a job of an earlier version.
WeightsDifference weights_difference(const Json& was, const Json& is);

/// `words` as a line for a POSIX shell.
std::string shell_line(std::span<const std::string> words);

/// The command line of this process without what a rerun must not repeat: --retry-failed, and
/// --force unless the output has lines that only --force skips.
std::string resume_command(bool keeps_force);

/// Whether results go to stdout.
bool is_stdout(const std::string& output);

}  // namespace hyb::app
