#include "core/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/io/descriptor_io.h"

namespace hyb {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& text) {
  throw Error(ErrorKind::model, path.string() + ": " + text);
}

std::string reason(int code) { return std::generic_category().message(code); }

[[noreturn]] void fail_to_open(const std::filesystem::path& path, int code) {
  std::error_code ignored;
  if (code == ENOENT && std::filesystem::is_symlink(path, ignored)) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
    fail(path, fmt::format("is a link to {}, which is not there; was the download completed?",
                           (path.parent_path() / target).lexically_normal().string()));
  }
  fail(path, "can't be opened: " + reason(code));
}

std::int64_t changed_ns_of(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace

File::File(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor_.is_open()) fail_to_open(path_, errno);
  struct stat status {};
  if (::fstat(descriptor(), &status) != 0) fail(path_, "can't be examined: " + reason(errno));
  if (!S_ISREG(status.st_mode)) fail(path_, "is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  changed_ns_ = changed_ns_of(status);
}

void File::check_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor(), &status) != 0) fail(path_, "can't be examined: " + reason(errno));
  if (static_cast<std::uint64_t>(status.st_size) != size_) {
    fail(path_, fmt::format("changed while it was in use: {} bytes at first, {} bytes now", size_,
                            status.st_size));
  }
  if (changed_ns_of(status) != changed_ns_) fail(path_, "was written to while it was in use");
}

void File::read(std::uint64_t offset, std::span<std::byte> into) const {
  const auto [bytes, code] = read_at(descriptor(), offset, into);
  const std::uint64_t end = offset + bytes;
  if (code != 0) fail(path_, fmt::format("can't be read at byte {}: {}", end, reason(code)));
  if (bytes < into.size()) {
    fail(path_, fmt::format("ends at byte {}; {} more were expected: it is truncated or changed "
                            "while it was read",
                            end, into.size() - bytes));
  }
}

bool is_listed(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() !=
         std::filesystem::file_type::not_found;
}

std::string read_whole_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const File file(path);
  if (file.size() > bytes_max) {
    fail(path, fmt::format("has {} bytes, at most {} are read", file.size(), bytes_max));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace hyb
