#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/io/descriptor_io.h"

namespace hyb {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

/// Whether the name still leads to the open file: whoever held the lock before may have renamed it.
bool leads_to(const std::filesystem::path& path, int descriptor) {
  struct stat there {};
  struct stat open {};
  return ::lstat(path.c_str(), &there) == 0 && ::fstat(descriptor, &open) == 0 &&
         there.st_ino == open.st_ino && there.st_dev == open.st_dev;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, FileAccess access)
    : path_(std::move(path)), beside_(path_) {
  beside_ += ".new";
  const bool is_private = access == FileAccess::owner;
  const mode_t mode = is_private ? 0600 : 0666;
  constexpr int attempts_max = 8;
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    // O_NONBLOCK: a FIFO of that name is refused, not waited for.
    descriptor_ = Descriptor(
        ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
    if (!descriptor_.is_open()) fail("can't be written", errno);
    const int descriptor = descriptor_.number();
    int code = 0;
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
      code = EINVAL;
    } else if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      code = errno == EWOULDBLOCK ? EBUSY : errno;
    } else if (leads_to(beside_, descriptor)) {
      const bool has_rights = !is_private || ::fchmod(descriptor, mode) == 0;
      if (has_rights && ::ftruncate(descriptor, 0) == 0) return;
      code = errno;
    }
    if (code != 0) fail("can't be written", code);
  }
  fail("is being written by others", EBUSY);
}

AtomicFile::~AtomicFile() {
  if (descriptor_.is_open()) ::unlink(beside_.c_str());
}

void AtomicFile::fail(const char* doing, int code) const {
  throw Error(ErrorKind::runtime,
              path_.string() + ": " + doing + ": " + std::generic_category().message(code));
}

void AtomicFile::put(std::uint64_t offset, std::span<const std::byte> bytes) {
  const int code = write_at(descriptor_.number(), offset, bytes);
  if (code != 0) fail("can't be written", code);
}

void AtomicFile::flush() {
  put(written_, buffer_);
  written_ += buffer_.size();
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() > buffer_bytes) {
    put(written_, bytes);
    written_ += bytes.size();
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::rewrite_front(std::span<const std::byte> bytes) {
  require(bytes.size() <= size(), "atomic file: only what was written can be replaced");
  flush();
  put(0, bytes);
}

void AtomicFile::commit() {
  require(descriptor_.is_open(), "atomic file: committed once");
  flush();
  if (::fsync(descriptor_.number()) != 0) fail("did not get to the disk", errno);
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("can't be put in its place", errno);
  descriptor_ = Descriptor();
  const int code = sync_folder(path_.parent_path());
  if (code != 0) fail("its folder can't be synced", code);
}

void write_atomically(const std::filesystem::path& path, std::string_view text, FileAccess access) {
  AtomicFile file(path, access);
  file.write(text);
  file.commit();
}

}  // namespace hyb
