#include "app/trace_file.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/device.h"

namespace hyb::app {

TraceFile::TraceFile(const std::string& path)
    : path_(path), out_(path, std::ios::binary | std::ios::trunc), recorder_(out_) {
  if (!out_) throw Error(ErrorKind::runtime, path_ + ": the trace can't be written there");
}

TraceFile::~TraceFile() {
  out_.flush();
  if (!out_) log::warning(path_ + ": not all of the trace could be written");
}

CardTraces card_traces() {
  CardTraces traces;
  for (const char* const file : {"/dev/nvidiactl", "/dev/nvidia0"}) {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) traces.has_device = true;
  }
  if (void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    traces.has_driver = true;
    dlclose(library);
  }
  return traces;
}

std::string unused_card_text(bool build_has_cuda, const CardTraces& traces) {
  if (build_has_cuda || !traces.has_device) return "";
  return "this machine has an NVIDIA card, but this hyb was built without CUDA: build it again "
         "where nvcc of CUDA 12.4 or later is (README, On an NVIDIA card), then ask for --device "
         "cuda; "
         "--device cpu is used";
}

void warn_of_unused_card() {
  static const std::string told = [] {
    std::string text = kernels::has_cuda ? "" : unused_card_text(false, card_traces());
    if (!text.empty()) log::warning(text);
    return text;
  }();
}

}  // namespace hyb::app
