#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/model/weight_hashes.h"
#include "core/base/json.h"

namespace hyb::app {

/// Input, model and settings of a batch job, kept next to the output as OUT.job: a rerun must find
/// the same input, model and settings, or its results would be of another job.
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

/// The member of an object; null where there is none, or no object.
Json member(const Json& object, const char* key);

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

/// Compares two weights_json(); nothing where one is null: random weights, or an earlier version.
/// Files are compared by name, but where both sides have only one, whatever its name.
WeightsDifference weights_difference(const Json& was, const Json& is);

}  // namespace hyb::app
