#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/json.h"

namespace hyb::app {

/// What a batch job is made of, kept beside the output as OUT.job: a rerun must find the same
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

}  // namespace hyb::app
