#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/batch/input_file.h"
#include "app/batch/result_lines.h"
#include "app/model/digest.h"
#include "core/io/file.h"

namespace hyb::app {

/// Holds what a result records of its request.
struct ResultMark {
  Hash128 id;  ///< of the custom_id
  bool failed;
};

/// Nothing when `line` is not a whole result.
std::optional<ResultMark> read_result(std::string_view line);

/// The file of results: lines are only ever appended, each with one write, and no other process
/// writes it at the same time.
///
/// A file that is deleted, renamed, replaced, cut or written to by others while it is open no
/// longer holds what was appended. append(), sync() and sync_if_due() look for that and throw
/// Error(runtime), so that no result is counted which is not there.
///
/// The results may also go to stdout: a stream, which is not read back and can't be resumed.
class OutputFile {
 public:
  /// Opens or creates it and locks it. Throws Error(usage) for what is not a regular file, and
  /// Error(runtime) when another process writes it or it cannot be written.
  static OutputFile open(const std::filesystem::path& path);

  /// Writes to this descriptor, which stays the caller's. `name` is for messages.
  static OutputFile stream(int descriptor, const std::string& name);

  /// The path with symbolic links resolved.
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return stream_ >= 0 ? stream_ : file_.number(); }
  bool is_empty() const { return bytes_ == 0; }
  bool is_stream() const { return stream_ >= 0; }
  /// A stream without a reader: append() drops lines and returns EPIPE.
  bool is_closed() const { return is_closed_; }

  /// Reads all results. A torn last line, the trace of a crash, is cut off: its request counts as
  /// not done; one that lacks only its line break gets it. Throws Error(model) naming a line that
  /// is not a result, unless `skip_foreign`.
  std::vector<ResultMark> recover(bool skip_foreign);
  /// The same of text or TSV, whose lines say by their number alone what they are results of: a
  /// torn last line is cut off, and what comes before the next request is added.
  /// Throws Error(model) where lines cannot be results of this input.
  std::vector<ResultMark> recover_lines(const InputFile& input, ResultFormat format);
  /// Lines that recover() skipped.
  std::int64_t foreign_lines() const { return foreign_lines_; }

  /// Replaces the file by one without failed results (written next to it, then renamed).
  void drop_failed();

  /// Appends `line`, which ends with a line break. Returns 0, or the errno of the failure: then a
  /// file holds what it held before.
  int append(std::string_view line);

  /// Waits until all lines are on the disk. Throws Error(runtime) when they did not get there; the
  /// file is then cut to what did.
  void sync();
  /// Cheap enough for every step: looks at the file several times a second, and sync() when the
  /// last one is a second ago and there are new lines.
  void sync_if_due();

  /// Says what others did to the file and what helps, as "was deleted ..."; empty: nothing.
  std::string interference() const;

 private:
  using Clock = std::chrono::steady_clock;

  OutputFile(std::filesystem::path path, Descriptor file) noexcept
      : path_(std::move(path)), file_(std::move(file)) {}

  void copy_answered(OutputFile& kept);
  void cut(std::uint64_t bytes);
  int append_to_stream(std::string_view line);
  void refuse_interference() const;

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_ = 0;         ///< all whole lines
  std::uint64_t synced_bytes_ = 0;  ///< known to be on the disk
  bool is_torn_ = false;            ///< there are bytes after bytes_ that have to go
  std::int64_t foreign_lines_ = 0;
  int stream_ = -1;  ///< where results go instead of file_
  bool is_closed_ = false;
  Clock::time_point synced_ = Clock::now(), looked_ = synced_;
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
    /// Results wait in memory until this is true; what it throws ends the job without them. Empty:
    /// they do not wait.
    std::function<bool()> may_write = {};
    std::size_t held_bytes_max = std::size_t{64} << 20;  ///< of these; put() waits when it is more
  };

  /// The output outlives this.
  ResultWriter(OutputFile& output, Options options)
      : output_(output), options_(std::move(options)) {}

  /// Takes the result of the job's line `place` (0, 1, 2, ...), each once. Throws Error(runtime)
  /// when the output cannot be written for longer than the patience lasts.
  void put(std::int64_t place, std::string line, bool failed);

  /// Lines that are in the output, and how many of them are failed results.
  std::int64_t written() const { return written_; }
  std::int64_t failed() const { return failed_; }
  /// Lines whose turn has come: the ones in the output and the ones that wait for may_write.
  std::int64_t turns() const { return written_ + static_cast<std::int64_t>(held_.size()); }

  /// Between steps: writes what may be written now, and OutputFile::sync_if_due().
  void poll();
  /// Waits until all results are on the disk. When stopped, results that still wait for may_write
  /// are dropped.
  void finish();

 private:
  struct Result {
    std::string line;
    bool failed;
  };

  bool may_write();
  void wait_for_permission();
  void hand_over(Result result);
  void write(const Result& result);

  OutputFile& output_;
  Options options_;
  std::int64_t written_ = 0, failed_ = 0;
  std::map<std::int64_t, Result> early_;  ///< ordered: results whose turn has not come
  std::deque<Result> held_;               ///< may not be written yet
  std::size_t held_bytes_ = 0;
};

}  // namespace hyb::app
