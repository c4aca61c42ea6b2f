#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyb {

/// Owns an open file descriptor, or none (any negative number).
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  void close() {
    if (number_ >= 0) ::close(number_);
  }

  int number_ = -1;
};

/// Whole transfers: signals and pieces are seen to here. Each answers with an errno, 0 for success,
/// so that its caller can say in its own words what could not be done.

/// Writes all of `bytes` from `offset` on. A file that takes no more without saying why: ENOSPC.
/// After a failure the first of them may have been written.
int write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes);

/// Writes all of `text` where the descriptor stands, or at the end of a file opened for appending.
int write_all(int descriptor, std::string_view text);

struct ReadResult {
  std::size_t bytes;  ///< so many of the first bytes were read
  int code;           ///< why no more; 0: the file ends there, or all were read
};

/// Fills `into` from `offset` on, as far as the file goes.
ReadResult read_at(int descriptor, std::uint64_t offset, std::span<std::byte> into);

/// Makes durable which names a folder holds: of files created or renamed in it. "" is the current
/// folder. Where the file system cannot sync a folder there is nothing to be done: 0.
int sync_folder(const std::filesystem::path& folder);

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

/// XXH3, 64 bits: finds damage, protects from no adversary. With different seeds the same bytes
/// have different sums.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// A name from a file, fit for an error message: in double quotes, control characters (also the
/// eight-bit ones that terminals obey) as \xNN, cut after 200 bytes with "..." outside the quotes.
std::string quote_name(std::string_view name);

}  // namespace hyb
