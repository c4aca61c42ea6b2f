#include "core/io/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/io/shrink_watch.h"

namespace hyb {

MappedFile::MappedFile(const File& file) : path_(file.path()) {
  file.check_unchanged();
  require(file.size() <= std::numeric_limits<std::ptrdiff_t>::max(), "MappedFile: size");
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return;  // mmap refuses a length of 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorKind::model,
                path_.string() + ": can't be mapped: " + std::generic_category().message(errno));
  }
  try {
    watch_ = watch_mapping(address, size, path_.native());
  } catch (...) {
    ::munmap(address, size);
    throw;
  }
  data_ = static_cast<std::byte*>(address);
  size_ = size;
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      watch_(std::exchange(other.watch_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(watch_, other.watch_);
  return *this;
}

void MappedFile::close() {
  if (data_ == nullptr) return;
  unwatch_mapping(watch_);
  ::munmap(data_, size_);
}

void MappedFile::drop(std::size_t offset, std::size_t length) const {
  require(offset <= size_ && length <= size_ - offset, "MappedFile::drop: range inside the file");
  if (length == 0) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;
  // A refusal costs memory, not correctness.
  ::madvise(data_ + begin, offset + length - begin, MADV_DONTNEED);
}

}  // namespace hyb
