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

/// What of NVIDIA's a machine shows to who does not use CUDA.
struct CardTraces {
  bool has_device = false;  ///< a device file of a card
  bool has_driver = false;  ///< libcuda can be opened
};

CardTraces card_traces();

/// What a build without CUDA has to say beside a card; "" where there is nothing to say.
std::string unused_card_text(bool build_has_cuda, const CardTraces& traces);

/// Says so, as a warning, once in a process.
void warn_of_unused_card();

}  // namespace hyb::app
