#include "core/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb {
namespace {

/// `transfer(done)` transfers some of the bytes that follow the first `done`, as write() and read()
/// do.
template <typename Transfer>
ReadResult repeat(std::size_t bytes, Transfer transfer) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = transfer(done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return {done, errno};
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return {done, 0};
}

int code_of_write(ReadResult written, std::size_t bytes) {
  return written.code == 0 && written.bytes < bytes ? ENOSPC : written.code;
}

}  // namespace

int write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto written = repeat(bytes.size(), [&](std::size_t done) {
    return ::pwrite(descriptor, bytes.data() + done, bytes.size() - done,
                    static_cast<off_t>(offset + done));
  });
  return code_of_write(written, bytes.size());
}

int write_all(int descriptor, std::string_view text) {
  const auto written = repeat(text.size(), [&](std::size_t done) {
    return ::write(descriptor, text.data() + done, text.size() - done);
  });
  return code_of_write(written, text.size());
}

ReadResult read_at(int descriptor, std::uint64_t offset, std::span<std::byte> into) {
  return repeat(into.size(), [&](std::size_t done) {
    return ::pread(descriptor, into.data() + done, into.size() - done,
                   static_cast<off_t>(offset + done));
  });
}

int sync_folder(const std::filesystem::path& folder) {
  const char* const name = folder.empty() ? "." : folder.c_str();
  const Descriptor opened(::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return errno;
  return ::fsync(opened.number()) == 0 || errno == EINVAL ? 0 : errno;
}

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& text) {
  throw Error(ErrorKind::model, path.string() + ": " + text);
}

std::string reason(int code) { return std::generic_category().message(code); }

[[noreturn]] void fail_to_open(const std::filesystem::path& path, int code) {
  std::error_code ignored;
  if (code == ENOENT && std::filesystem::is_symlink(path, ignored)) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
    fail(path, fmt::format("is a link to {}, which is not there; was the download completed?",
                           (path.parent_path() / target).lexically_normal().string()));
  }
  fail(path, "can't be opened: " + reason(code));
}

std::int64_t changed_ns_of(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace

File::File(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor_.is_open()) fail_to_open(path_, errno);
  struct stat status {};
  if (::fstat(descriptor(), &status) != 0) fail(path_, "can't be examined: " + reason(errno));
  if (!S_ISREG(status.st_mode)) fail(path_, "is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  changed_ns_ = changed_ns_of(status);
}

void File::check_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor(), &status) != 0) fail(path_, "can't be examined: " + reason(errno));
  if (static_cast<std::uint64_t>(status.st_size) != size_) {
    fail(path_, fmt::format("changed while it was in use: {} bytes at first, {} bytes now", size_,
                            status.st_size));
  }
  if (changed_ns_of(status) != changed_ns_) fail(path_, "was written to while it was in use");
}

void File::read(std::uint64_t offset, std::span<std::byte> into) const {
  const auto [bytes, code] = read_at(descriptor(), offset, into);
  const std::uint64_t end = offset + bytes;
  if (code != 0) fail(path_, fmt::format("can't be read at byte {}: {}", end, reason(code)));
  if (bytes < into.size()) {
    fail(path_, fmt::format("ends at byte {}; {} more were expected: it is truncated or changed "
                            "while it was read",
                            end, into.size() - bytes));
  }
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool is_listed(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() !=
         std::filesystem::file_type::not_found;
}

namespace {

std::string read_whole(const File& file, std::size_t bytes_max) {
  if (file.size() > bytes_max) {
    fail(file.path(), fmt::format("has {} bytes, at most {} are read", file.size(), bytes_max));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Returns iconv's name of the encoding of text in UTF-16 or UTF-32; empty: it is another.
std::string wide_encoding(std::string_view start) {
  const auto begins = [&](std::string_view mark) { return start.starts_with(mark); };
  if (begins({"\xff\xfe\0\0", 4}) || begins({"\0\0\xfe\xff", 4})) return "UTF-32";
  if (begins("\xff\xfe") || begins("\xfe\xff")) return "UTF-16";
  std::array<std::size_t, 2> zeros{};
  for (std::size_t i = 0; i < start.size(); ++i) zeros[i % 2] += start[i] == '\0' ? 1 : 0;
  const auto is_ascii = [&](std::size_t high) {
    return zeros[1 - high] == 0 && zeros[high] > 1 && zeros[high] * 4 > start.size();
  };
  if (is_ascii(1)) return "UTF-16LE";
  return is_ascii(0) ? "UTF-16BE" : "";
}

}  // namespace

std::string read_whole_file(const std::filesystem::path& path, std::size_t bytes_max) {
  return read_whole(File(path), bytes_max);
}

void refuse_pointer(const File& file) {
  constexpr std::string_view first = "version https://git-lfs.github.com/spec/";
  constexpr std::size_t pointer_bytes_max = 1024;
  if (file.size() < first.size() || file.size() > pointer_bytes_max) return;
  std::string start(first.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  if (start != first) return;
  fail(file.path(),
       "is a pointer of Git LFS, not the file itself: the repository was cloned without it; "
       "git lfs pull in its folder fetches the file");
}

void refuse_wide(std::string_view text, std::string_view source) {
  constexpr std::size_t start_bytes = 4096;
  const std::string encoding = wide_encoding(text.substr(0, start_bytes));
  if (encoding.empty()) return;
  fail(source, fmt::format("is text in {0}, and UTF-8 is read: iconv -f {0} -t UTF-8 {1}", encoding,
                           source));
}

std::string without_mark(std::string text, std::string_view source) {
  refuse_wide(text, source);
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  return text;
}

std::string read_text_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const File file(path);
  refuse_pointer(file);
  return without_mark(read_whole(file, bytes_max), path.string());
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

/// Returns whether the path still names the open file: the previous holder of the lock may have
/// renamed it.
bool still_names(const std::filesystem::path& path, int descriptor) {
  struct stat there {};
  struct stat open {};
  return ::lstat(path.c_str(), &there) == 0 && ::fstat(descriptor, &open) == 0 &&
         there.st_ino == open.st_ino && there.st_dev == open.st_dev;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, FileAccess access)
    : path_(std::move(path)), temporary_path_(path_) {
  temporary_path_ += ".new";
  const bool is_private = access == FileAccess::owner;
  const mode_t mode = is_private ? 0600 : 0666;
  constexpr int attempts_max = 8;
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    // O_NONBLOCK: opening a FIFO must not wait for its reader.
    descriptor_ = Descriptor(::open(
        temporary_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
    if (!descriptor_.is_open()) fail("can't be written", errno);
    const int descriptor = descriptor_.number();
    int code = 0;
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) {
      code = errno;
    } else if (!S_ISREG(status.st_mode)) {
      code = EINVAL;
    } else if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      code = errno == EWOULDBLOCK ? EBUSY : errno;
    } else if (still_names(temporary_path_, descriptor)) {
      const bool has_mode = !is_private || ::fchmod(descriptor, mode) == 0;
      if (has_mode && ::ftruncate(descriptor, 0) == 0) return;
      code = errno;
      ::unlink(temporary_path_.c_str());  // it is locked: no one else writes it
    }
    if (code != 0) fail("can't be written", code);
  }
  fail("is being written by another process", EBUSY);
}

AtomicFile::~AtomicFile() {
  if (descriptor_.is_open()) ::unlink(temporary_path_.c_str());
}

void AtomicFile::fail(const char* what, int code) const {
  throw Error(ErrorKind::runtime,
              path_.string() + ": " + what + ": " + std::generic_category().message(code));
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

void AtomicFile::commit() {
  require(descriptor_.is_open(), "atomic file: commit() is called once");
  flush();
  if (::fsync(descriptor_.number()) != 0) fail("can't be synced", errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) fail("can't be renamed", errno);
  descriptor_ = Descriptor();
  const int code = sync_folder(path_.parent_path());
  if (code != 0) fail("its folder can't be synced", code);
}

void write_atomically(const std::filesystem::path& path, std::string_view text, FileAccess access) {
  AtomicFile file(path, access);
  file.write(text);
  file.commit();
}

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

namespace {

constexpr std::size_t quoted_bytes_max = 200;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

/// C1 controls are U+0080 to U+009F: the bytes C2 80 to C2 9F.
bool starts_c1_control(std::string_view rest) {
  return rest.size() >= 2 && rest[0] == '\xC2' && static_cast<unsigned char>(rest[1]) >= 0x80 &&
         static_cast<unsigned char>(rest[1]) <= 0x9F;
}

}  // namespace

std::string quote_name(std::string_view name) {
  const bool cut = name.size() > quoted_bytes_max;
  if (cut) {
    std::size_t end = quoted_bytes_max;
    while (end > 0 && is_continuation(name[end])) --end;
    name = name.substr(0, end);
  }
  std::string out = "\"";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (starts_c1_control(name.substr(i))) {
      out += fmt::format("\\x{:02x}\\x{:02x}", byte, static_cast<unsigned char>(name[i + 1]));
      ++i;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += name[i];
    }
  }
  out += cut ? "\"..." : "\"";
  return out;
}

}  // namespace hyb
