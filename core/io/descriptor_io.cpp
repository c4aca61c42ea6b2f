#include "core/io/descriptor_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/io/descriptor.h"

namespace hyb {
namespace {

/// `transfer(done)` moves some bytes behind the first `done` of `bytes`, as write() and read() do.
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

}  // namespace hyb
