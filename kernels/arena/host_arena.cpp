#include "kernels/arena/host_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "kernels/arena/host_ranges.h"

namespace hyb::kernels {
namespace {

/// Handles at the front of `handles` that lie one behind the other in the file.
std::size_t run_length(std::span<const HandleId> handles) {
  std::size_t run = 1;
  while (run < handles.size() && index(handles[run]) == index(handles[run - 1]) + 1) ++run;
  return run;
}

}  // namespace

HostArena::HostArena(std::size_t handle_bytes) : Arena(handle_bytes) {
  host::check_handle_bytes(handle_bytes);
  file_ = ::memfd_create("hyb-arena", MFD_CLOEXEC);
  if (file_ < 0) host::refuse("memfd_create", 0, errno, bytes_held());
}

HostArena::~HostArena() { ::close(file_); }

std::byte* HostArena::reserve(std::size_t bytes) { return host::reserve(bytes, bytes_held()); }

void HostArena::unreserve(std::byte* at, std::size_t bytes) {
  host::unreserve(at, bytes, bytes_held());
}

std::size_t HostArena::bytes_max() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<off_t>::max();
  }
  return static_cast<std::size_t>(limit.rlim_cur);
}

HandleId HostArena::create() {
  const HandleId handle = table_.add();
  try {
    grow(offset(handle) + handle_bytes());
  } catch (...) {
    table_.remove(handle);
    throw;
  }
  return handle;
}

void HostArena::grow(std::size_t bytes) {
  if (bytes <= file_bytes_) return;
  // Growing past the limit would end the process by a signal.
  if (bytes > bytes_max()) host::refuse("growing past ulimit -f", bytes, EFBIG, bytes_held());
  if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
    host::refuse("ftruncate", bytes, errno, bytes_held());
  }
  file_bytes_ = bytes;
}

void HostArena::release(HandleId handle) {
  table_.check_unmapped(handle);
  if (::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset(handle)), static_cast<off_t>(handle_bytes())) != 0) {
    host::refuse("fallocate", handle_bytes(), errno, bytes_held());
  }
  table_.remove(handle);
}

void HostArena::map(std::byte* at, std::span<const HandleId> handles) {
  for (const HandleId handle : handles) table_.check_exists(handle);
  for (std::size_t done = 0; done < handles.size();) {
    const auto run = handles.subspan(done, run_length(handles.subspan(done)));
    std::byte* const to = at + done * handle_bytes();
    const std::size_t bytes = run.size() * handle_bytes();
    if (::mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
               static_cast<off_t>(offset(run.front()))) == MAP_FAILED) {
      const int error = errno;
      if (done > 0) host::clear(at, done * handle_bytes());
      host::refuse("mmap", bytes, error, bytes_held());
    }
    host::prefer_huge_pages(to, bytes);
    done += run.size();
  }
  table_.map(handles);
}

void HostArena::unmap(std::byte* at, HandleId handle) {
  table_.check_mapped(handle);
  if (!host::clear(at, handle_bytes())) {
    host::refuse("unmapping", handle_bytes(), errno, bytes_held());
  }
  table_.unmap(handle);
}

ExportedHandle HostArena::export_handle(HandleId handle) const {
  table_.check_exists(handle);
  const int copy = ::fcntl(file_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) host::refuse("duplicating the descriptor", handle_bytes(), errno, bytes_held());
  return {.fd = copy, .offset = offset(handle), .bytes = handle_bytes()};
}

void HostArena::fill(std::byte* at, std::size_t bytes, std::byte value) {
  std::memset(at, std::to_integer<int>(value), bytes);
}

std::size_t HostArena::mappings_max() const { return host::mappings_max(); }

std::size_t HostArena::offset(HandleId handle) const {
  return static_cast<std::size_t>(index(handle)) * handle_bytes();
}

}  // namespace hyb::kernels
