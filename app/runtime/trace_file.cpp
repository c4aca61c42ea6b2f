#include "app/runtime/trace_file.h"

#include <cerrno>
#include <system_error>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {

TraceFile::TraceFile(const std::string& path, const std::string& model)
    : path_(path), out_(path, std::ios::binary | std::ios::trunc), recorder_(out_, model) {
  if (out_) return;
  throw Error(ErrorKind::runtime, path_ + ": the trace can't be written there: " +
                                      std::generic_category().message(errno));
}

TraceFile::~TraceFile() {
  out_.flush();
  if (!out_) log::warning(path_ + ": not all of the trace could be written");
}

}  // namespace hyb::app
