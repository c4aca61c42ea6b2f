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

/// Makes the new name durable. Some file systems can't sync a folder; nothing can be done then.
int sync_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int code = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  return code;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), beside_(path_) {
  beside_ += ".new";
  constexpr int attempts_max = 8;
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    // O_NONBLOCK: a FIFO of that name is refused, not waited for.
    descriptor_ =
        ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (descriptor_ < 0) fail("can't be written", errno);
    int code = 0;
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      code = EINVAL;
    } else if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      code = errno == EWOULDBLOCK ? EBUSY : errno;
    } else if (leads_to(beside_, descriptor_)) {
      if (::fchmod(descriptor_, 0600) == 0 && ::ftruncate(descriptor_, 0) == 0) return;
      code = errno;
    }
    ::close(std::exchange(descriptor_, -1));
    if (code != 0) fail("can't be written", code);
  }
  fail("is being written by others", EBUSY);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::unlink(beside_.c_str());
  ::close(descriptor_);
}

void AtomicFile::fail(const char* doing, int code) const {
  throw Error(ErrorKind::runtime,
              path_.string() + ": " + doing + ": " + std::generic_category().message(code));
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("can't be written", count < 0 ? errno : ENOSPC);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::flush() {
  write_at(written_, buffer_);
  written_ += buffer_.size();
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() > buffer_bytes) {
    write_at(written_, bytes);
    written_ += bytes.size();
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::rewrite_front(std::span<const std::byte> bytes) {
  require(bytes.size() <= size(), "atomic file: only what was written can be replaced");
  flush();
  write_at(0, bytes);
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, "atomic file: committed once");
  flush();
  if (::fsync(descriptor_) != 0) fail("did not get to the disk", errno);
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("can't be put in its place", errno);
  ::close(std::exchange(descriptor_, -1));
  if (const int code = sync_folder_of(path_); code != 0) fail("its folder can't be synced", code);
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace hyb
