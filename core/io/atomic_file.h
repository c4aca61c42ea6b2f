#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/io/descriptor.h"

namespace hyb {

/// Who may open a file that is written anew.
enum class FileAccess : std::uint8_t {
  owner,  ///< its owner alone
  umask,  ///< all whom the process's umask does not exclude
};

/// A file that appears whole or not at all: written beside its place under the name PATH.new,
/// synced, then renamed over it. What a killed process left under that name is overwritten by the
/// next one. Every failure is Error(runtime) that begins with the path; what stood at the path
/// before is then untouched.
class AtomicFile {
 public:
  /// Fails also when another process is writing the same file.
  explicit AtomicFile(std::filesystem::path path, FileAccess access = FileAccess::owner);
  /// Without commit() nothing is left behind.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Replaces the first bytes of what was written.
  void rewrite_front(std::span<const std::byte> bytes);

  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// All is on the disk and the file has its name. Call it once, as the last.
  void commit();

 private:
  void flush();
  void put(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* doing, int code) const;

  std::filesystem::path path_, beside_;
  Descriptor descriptor_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
};

/// The same for a text that is at hand.
void write_atomically(const std::filesystem::path& path, std::string_view text,
                      FileAccess access = FileAccess::owner);

}  // namespace hyb
