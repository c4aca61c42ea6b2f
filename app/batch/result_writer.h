#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "app/batch/output_file.h"

namespace hyb::app {

/// Puts results into the output, in the order in which they come or in the order of their lines,
/// and waits for a disk that is full.
class ResultWriter {
 public:
  struct Options {
    bool ordered = false;
    std::chrono::milliseconds patience{30'000};   ///< how long a failing write is tried again
    std::function<void(const std::string&)> say;  ///< tells a person that it waits
    std::function<bool()> is_stopped;             ///< ends the waiting
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
