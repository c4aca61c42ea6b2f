#pragma once

#include <fstream>
#include <string>

#include "core/engine/trace.h"

namespace hyb::app {

/// A trace that is being written. What could not be written is warned of at the end.
class TraceFile {
 public:
  /// Replaces the file; its first line names the model. Throws Error(runtime) when it can't be
  /// opened.
  TraceFile(const std::string& path, const std::string& model);
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
