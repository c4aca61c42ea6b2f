#include "core/io/storage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "core/base/error.h"
#include "core/io/descriptor_io.h"

namespace hyb {
namespace {

/// Some file systems know no files without a name; then the name is taken away at once.
Descriptor open_unnamed(const std::filesystem::path& folder) {
  Descriptor unnamed(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (unnamed.is_open() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
    return unnamed;
  }
  std::string name = (folder / "hyb-tier-XXXXXX").string();
  Descriptor named(::mkostemp(name.data(), O_CLOEXEC));
  if (named.is_open()) ::unlink(name.c_str());
  return named;
}

}  // namespace

FileStorage::FileStorage(const std::filesystem::path& folder)
    : folder_(folder), descriptor_(open_unnamed(folder)) {
  if (!descriptor_.is_open()) fail("no file can be made in it", errno);
}

void FileStorage::fail(const char* doing, int code) const {
  throw Error(ErrorKind::runtime,
              folder_.string() + ": " + doing + ": " + std::generic_category().message(code));
}

void FileStorage::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const int code = write_at(descriptor_.number(), offset, bytes);
  if (code != 0) fail("can't be written", code);
}

void FileStorage::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const ReadResult read = read_at(descriptor_.number(), offset, bytes);
  if (read.code != 0) fail("can't be read", read.code);
  if (read.bytes < bytes.size()) fail("can't be read", EIO);
}

std::uint64_t FileStorage::size() const {
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) fail("can't be examined", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

MemoryStorage::MemoryStorage(std::size_t bytes) : size_(bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorKind::memory,
                "host tier: the machine does not give " + std::to_string(bytes) + " bytes");
  }
  data_ = static_cast<std::byte*>(data);
}

MemoryStorage::~MemoryStorage() { ::munmap(data_, size_); }

void MemoryStorage::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  require(offset <= size_ && bytes.size() <= size_ - offset, "memory storage: inside its size");
  std::memcpy(data_ + offset, bytes.data(), bytes.size());
}

void MemoryStorage::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  require(offset <= size_ && bytes.size() <= size_ - offset, "memory storage: inside its size");
  std::memcpy(bytes.data(), data_ + offset, bytes.size());
}

}  // namespace hyb
