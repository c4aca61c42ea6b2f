#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/batch/input_file.h"
#include "app/digest.h"
#include "core/io/file.h"

namespace hyb::app {

/// A line of OpenAI's batch output with its line break. The line's own id follows from the
/// custom_id, so that a rerun gives it again.
std::string answered_line(const std::string& custom_id, const Json& response_body);
std::string failed_line(const std::string& custom_id, const LineFailure& failure);

/// What a result says about its request.
struct ResultMark {
  Hash128 id;  ///< of the custom_id
  bool failed;
};

/// Nothing when `line` is not a whole result.
std::optional<ResultMark> read_result(std::string_view line);

/// The file of results: lines are only ever appended, each with one write, and no other process
/// writes it at the same time.
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

  /// Replaces the file by one without failed results (written next to it, then renamed).
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
  bool is_torn_ = false;            ///< there are bytes after bytes_ that have to go
  Clock::time_point synced_ = Clock::now();
};

/// Puts results into the output, in the order in which they come or in the order of their lines,
/// and waits for a disk that is full.
class ResultWriter {
 public:
  struct Options {
    bool ordered = false;
    std::chrono::milliseconds patience{30'000};    ///< how long a failing write is tried again
    std::function<void(const std::string&)> warn;  ///< reports that it waits
    std::function<bool()> is_stopped;              ///< ends the waiting
  };

  /// The output outlives this.
  ResultWriter(OutputFile& output, Options options)
      : output_(output), options_(std::move(options)) {}

  /// Takes the result of the job's line `place` (0, 1, 2, ...), each once. Throws Error(runtime)
  /// when the output cannot be written for longer than the patience lasts.
  void put(std::int64_t place, std::string line);

  /// Lines that are in the output.
  std::int64_t written() const { return written_; }

  void sync_if_due() { output_.sync_if_due(); }
  void sync() { output_.sync(); }

 private:
  void write(const std::string& line);

  OutputFile& output_;
  Options options_;
  std::int64_t written_ = 0;
  std::map<std::int64_t, std::string> early_;  ///< ordered: results whose turn has not come
};

}  // namespace hyb::app
