#include "kernels/arena/private_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "kernels/arena/host_ranges.h"

namespace hyb::kernels {

PrivateArena::PrivateArena(std::size_t handle_bytes, Unmapped unmapped)
    : Arena(handle_bytes), unmapped_(unmapped) {
  host::check_handle_bytes(handle_bytes);
}

std::byte* PrivateArena::reserve(std::size_t bytes) {
  std::byte* const first = host::reserve(bytes, bytes_held());
  if (unmapped_ == Unmapped::faults) return first;
  if (::mprotect(first, bytes, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    ::munmap(first, bytes);
    host::refuse("mprotect", bytes, error, bytes_held());
  }
  host::prefer_huge_pages(first, bytes);
  return first;
}

void PrivateArena::unreserve(std::byte* at, std::size_t bytes) {
  host::unreserve(at, bytes, bytes_held());
}

void PrivateArena::map(std::byte* at, std::span<const HandleId> handles) {
  for (const HandleId handle : handles) table_.check_exists(handle);
  const std::size_t bytes = handles.size() * handle_bytes();
  if (unmapped_ == Unmapped::zeros) {
    table_.map(handles);
    return;
  }
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    host::refuse("mmap", bytes, errno, bytes_held());
  }
  host::prefer_huge_pages(at, bytes);
  table_.map(handles);
}

void PrivateArena::unmap(std::byte* at, HandleId handle) {
  table_.check_mapped(handle);
  const bool done = unmapped_ == Unmapped::zeros ? ::madvise(at, handle_bytes(), MADV_DONTNEED) == 0
                                                 : host::clear(at, handle_bytes());
  if (!done) {
    host::refuse("unmapping", handle_bytes(), errno, bytes_held());
  }
  table_.unmap(handle);
}

ExportedHandle PrivateArena::export_handle(HandleId) const {
  throw Error(ErrorKind::usage,
              "memory: private memory cannot be shared with another process; use --memory-mode "
              "flip");
}

void PrivateArena::fill(std::byte* at, std::size_t bytes, std::byte value) {
  std::memset(at, std::to_integer<int>(value), bytes);
}

std::size_t PrivateArena::mappings_max() const {
  return unmapped_ == Unmapped::zeros ? std::numeric_limits<std::size_t>::max()
                                      : host::mappings_max();
}

}  // namespace hyb::kernels
