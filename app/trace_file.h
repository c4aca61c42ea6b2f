#pragma once

#include <fstream>
#include <string>

#include "core/engine/trace.h"

namespace hyb::app {

/// A trace that is being written. What could not be written is warned of at the end.
class TraceFile {
 public:
  /// Replaces the file. Throws Error(runtime) when it can't be opened.
  explicit TraceFile(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  TraceRecorder& recorder() { return recorder_; }

 private:
  std::string path_;
  std::ofstream out_;
  TraceRecorder recorder_;
};

}  // namespace hyb::app
