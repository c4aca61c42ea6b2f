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

// Complete transfers: these functions retry after signals and partial transfers. They return an
// errno value, 0 for success, so that the caller words the error.

/// Writes all of `bytes` at `offset`. A write of 0 bytes counts as ENOSPC. After a failure some of
/// the bytes may have been written.
int write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes);

/// Writes all of `text` at the descriptor's current offset, or at the end of a file opened with
/// O_APPEND.
int write_all(int descriptor, std::string_view text);

struct ReadResult {
  std::size_t bytes;  ///< number of bytes read
  int code;           ///< errno of a failed read; 0: end of file, or everything was read
};

/// Fills `into` from `offset` on, up to the end of the file.
ReadResult read_at(int descriptor, std::uint64_t offset, std::span<std::byte> into);

/// fsync of a folder: makes the names of files created or renamed in it durable. "" is the current
/// folder. Returns 0 where the file system cannot sync folders.
int sync_folder(const std::filesystem::path& folder);

/// A regular file, open for reading. Symbolic links are followed; a folder, FIFO, socket or device
/// is refused without blocking. Every failure is Error(model) that begins with the path.
class File {
 public:
  explicit File(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_.number(); }

  /// Size in bytes at the time of opening.
  std::uint64_t size() const { return size_; }

  /// Throws when size or modification time changed since the file was opened.
  void check_unchanged() const;

  /// Fills all of `into` from `offset` on; reaching the end of the file is an error.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  std::int64_t changed_ns_ = 0;
};

/// Returns whether a folder has an entry of that name. Also true for a dangling link, and where
/// permissions forbid the look-up: opening the file then reports what is wrong.
bool is_listed(const std::filesystem::path& path);

/// Returns whether it is a folder, or a link to one.
bool is_folder(const std::filesystem::path& path);

/// The bytes of a file that may not be larger than `bytes_max`.
/// Throws Error(model) that names the file: missing, not a regular file, too large, unreadable.
std::string read_whole_file(const std::filesystem::path& path, std::size_t bytes_max);

/// Throws Error(model) where a pointer of Git LFS lies in place of the file.
void refuse_pointer(const File& file);

/// Editors of some systems begin a file in UTF-8 with it.
inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Throws Error(model) that begins with `source` for text in UTF-16 or UTF-32, as its first bytes
/// show: by a byte order mark, or by every second byte being 0.
void refuse_wide(std::string_view text, std::string_view source);

/// Text that is to be UTF-8: without its byte order mark. Throws as refuse_wide().
std::string without_mark(std::string text, std::string_view source);

/// read_whole_file() of a text: without_mark(), and no pointer of Git LFS.
std::string read_text_file(const std::filesystem::path& path, std::size_t bytes_max);

/// The first line of a file of /proc or /sys, which have no size; empty where it cannot be read.
std::string first_line(const std::filesystem::path& path);

/// Permissions of a newly written file.
enum class FileAccess : std::uint8_t {
  owner,  ///< 0600
  umask,  ///< 0666 minus the process's umask
};

/// A file that appears complete or not at all: written as PATH.new, synced, then renamed to PATH. A
/// PATH.new left by a killed process is overwritten by the next one. Every failure is
/// Error(runtime) that begins with the path and leaves the previous file untouched.
class AtomicFile {
 public:
  /// Also fails when another process is writing the same file.
  explicit AtomicFile(std::filesystem::path path, FileAccess access = FileAccess::owner);
  /// Without commit(), removes PATH.new.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// Syncs the file and gives it its name. Call it once, last.
  void commit();

 private:
  void flush();
  void put(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* what, int code) const;

  std::filesystem::path path_, temporary_path_;
  Descriptor descriptor_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
};

/// Writes a whole text that way.
void write_atomically(const std::filesystem::path& path, std::string_view text,
                      FileAccess access = FileAccess::owner);

/// XXH3 of 64 bits: detects damage, not tampering. Different seeds give different sums.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// A name from a file, made safe for a message: in double quotes, control characters (also the C1
/// ones that terminals obey) as \xNN, cut after 200 bytes with "..." after the closing quote.
std::string quote_name(std::string_view name);

}  // namespace hyb
