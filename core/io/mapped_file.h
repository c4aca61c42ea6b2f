#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "core/io/file.h"

namespace hyb {

/// A regular file mapped read-only into memory as a whole; pages are read on first access.
///
/// When a mapped file shrinks, the kernel sends SIGBUS on access to the lost pages. The first
/// mapping installs a handler that recognises this, writes one line with the file's name to stderr
/// and ends the process with exit status 3. Any other SIGBUS keeps its default effect.
class MappedFile {
 public:
  /// Throws Error(model) as File does; also when the file changed since it was opened or can't be
  /// mapped. An empty file is legal and has no bytes.
  explicit MappedFile(const File& file);
  explicit MappedFile(const std::filesystem::path& path) : MappedFile(File(path)) {}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }

  /// Valid until the destructor; a move keeps the addresses.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Releases the physical pages that hold [offset, offset + length). The bytes stay readable: a
  /// later access, also to neighbours on the same page, reads them from the file again.
  void drop(std::size_t offset, std::size_t length) const;

 private:
  void close();

  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int watch_ = -1;  // index among the ranges that the SIGBUS handler knows
};

}  // namespace hyb
