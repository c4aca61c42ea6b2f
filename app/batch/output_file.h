#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/batch/result_line.h"
#include "core/io/descriptor.h"

namespace hyb::app {

/// The file of results: lines are only ever appended, each with one write, and nobody else writes
/// it meanwhile.
class OutputFile {
 public:
  /// Opens or creates it and locks it. Throws Error(usage) for what is no regular file, and
  /// Error(runtime) when another process writes it or it cannot be written.
  static OutputFile open(const std::filesystem::path& path);

  /// The path with symbolic links resolved.
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return file_.number(); }
  bool is_empty() const { return bytes_ == 0; }

  /// Reads all results. A torn last line, the trace of a crash, is cut off: its request counts as
  /// not done; one that lacks only its line break gets it. Throws Error(model) naming a line that
  /// is no result, unless `skip_foreign`.
  std::vector<ResultMark> recover(bool skip_foreign);

  /// Replaces the file by one without failed results (written beside it, then renamed).
  void drop_failed();

  /// Appends `line`, which ends with a line break. Returns 0, or the errno of the failure: then the
  /// file holds what it held before.
  int append(std::string_view line);

  /// Waits until all lines are on the disk. Throws Error(runtime) when they did not get there; the
  /// file is then cut to what did.
  void sync();
  /// sync(), when the last one is a second ago and there are new lines.
  void sync_if_due();

 private:
  using Clock = std::chrono::steady_clock;

  OutputFile(std::filesystem::path path, Descriptor file) noexcept
      : path_(std::move(path)), file_(std::move(file)) {}

  void cut(std::uint64_t bytes);

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_ = 0;         ///< all whole lines
  std::uint64_t synced_bytes_ = 0;  ///< known to be on the disk
  bool is_torn_ = false;            ///< there are bytes behind bytes_ that have to go
  Clock::time_point synced_ = Clock::now();
};

}  // namespace hyb::app
