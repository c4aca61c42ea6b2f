#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/io/descriptor.h"

namespace hyb {

/// An open regular file, for reading. Symbolic links are followed; a folder, FIFO, socket or device
/// is refused without waiting for it. Every failure is Error(model) that begins with the path.
class File {
 public:
  explicit File(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_.number(); }

  /// Size in bytes when it was opened.
  std::uint64_t size() const { return size_; }

  /// Throws when size or time of change are no longer what they were when it was opened.
  void check_unchanged() const;

  /// Fills all of `into` from `offset` on; a file that ends before is an error.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  std::int64_t changed_ns_ = 0;
};

/// Whether a folder has an entry of that name. Also true for a link that leads nowhere, and where
/// looking is not allowed: opening it says what is wrong.
bool is_listed(const std::filesystem::path& path);

/// The bytes of a file that may not be larger than `bytes_max`.
/// Throws Error(model) that names the file: missing, not a regular file, too large, unreadable.
std::string read_whole_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace hyb
