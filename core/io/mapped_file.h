#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/io/file.h"

namespace hyb {

/// A whole regular file mapped read-only into memory; nothing is read before it is touched.
///
/// A file that shrinks while it is mapped makes the kernel send SIGBUS to whoever touches the lost
/// pages. The first mapping installs a handler that recognises this, writes one line naming the
/// file to stderr and ends the process with exit status 3. Any other SIGBUS keeps its default
/// effect.
class MappedFile {
 public:
  /// Throws Error(model): see File; also when the file changed since it was opened or can't be
  /// mapped. An empty file is legal and has no bytes.
  explicit MappedFile(const File& file);
  explicit MappedFile(const std::filesystem::path& path) : MappedFile(File(path)) {}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }

  /// Valid until the destructor; the same addresses after a move.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Gives the physical pages that hold [offset, offset + length) back to the system. The bytes
  /// stay readable: a later touch, also of neighbours on the same page, reads them from the file
  /// again.
  void drop(std::size_t offset, std::size_t length) const;

 private:
  void close();

  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int watch_ = -1;  // place among the ranges that the SIGBUS handler knows
};

}  // namespace hyb
