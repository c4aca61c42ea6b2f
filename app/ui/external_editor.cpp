#include "app/ui/external_editor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

constexpr std::size_t edited_bytes_max = std::size_t{64} << 20;

/// A file that only we can read, and that goes with this.
struct ScratchFile {
  ScratchFile() {
    std::error_code none;
    path = (std::filesystem::temp_directory_path(none) / "hyb-XXXXXX.md").string();
    constexpr int suffix_bytes = 3;
    file = Descriptor(::mkostemps(path.data(), suffix_bytes, O_CLOEXEC));
  }
  ~ScratchFile() {
    if (file.is_open()) ::unlink(path.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::string path;
  Descriptor file;
};

}  // namespace

std::string edited_by(const std::string& command, const std::string& text) {
  if (command.empty()) {
    throw Error(ErrorKind::usage, "Ctrl-X Ctrl-E: neither VISUAL nor EDITOR names an editor");
  }
  const ScratchFile scratch;
  const int code = scratch.file.is_open() ? write_all(scratch.file.number(), text + '\n') : errno;
  if (code != 0) {
    throw Error(ErrorKind::runtime, fmt::format("{}: {}", scratch.path, std::strerror(code)));
  }
  // Ctrl-C is for the editor alone: system() ignores it meanwhile.
  const int status = std::system(fmt::format("{} '{}'", command, scratch.path).c_str());
  if (status != 0) {
    throw Error(ErrorKind::runtime,
                fmt::format("{}: the editor ended with {}; the text stays as it was", command,
                            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
  }
  std::string edited = read_text_file(scratch.path, edited_bytes_max);
  if (edited.ends_with('\n')) edited.pop_back();
  return edited;
}

}  // namespace hyb::app
