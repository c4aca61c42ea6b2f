#include "kernels/arena/host_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::kernels::host_memory {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr int nothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

void check_handle_bytes(std::size_t handle_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  require(handle_bytes > 0 && handle_bytes % page == 0, "arena: a handle is whole pages");
}

std::byte* reserve(std::size_t bytes, std::size_t bytes_held) {
  void* const mapped = ::mmap(nullptr, bytes + huge_page, PROT_NONE, nothing, -1, 0);
  if (mapped == MAP_FAILED) refuse("reserving addresses", bytes, errno, bytes_held);
  std::byte* const first = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % huge_page;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + bytes, huge_page - before);
  return first + before;
}

void unreserve(std::byte* at, std::size_t bytes, std::size_t bytes_held) {
  if (::munmap(at, bytes) != 0) refuse("munmap", bytes, errno, bytes_held);
}

bool clear(std::byte* at, std::size_t bytes) {
  return ::mmap(at, bytes, PROT_NONE, nothing | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void prefer_huge_pages(std::byte* at, std::size_t bytes) {
  if (bytes >= huge_page) ::madvise(at, bytes, MADV_HUGEPAGE);
}

bool populate(std::byte* at, std::size_t bytes) {
  return ::madvise(at, bytes, MADV_POPULATE_WRITE) == 0;
}

std::size_t mappings_max() {
  constexpr std::size_t kept_for_others = 4096;  // thread stacks, the allocator, mapped files
  std::size_t limit = 65530;                     // the kernel's default, where /proc is hidden
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  std::size_t used = kept_for_others;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++used;
  return limit > used ? limit - used : 0;
}

void refuse(const char* call, std::size_t bytes, int error, std::size_t bytes_held) {
  throw Error(ErrorKind::memory,
              fmt::format("memory: {} of {} bytes was refused ({}); {} bytes are in handles; use a "
                          "smaller --memory",
                          call, bytes, std::generic_category().message(error), bytes_held));
}

}  // namespace hyb::kernels::host_memory

namespace hyb::kernels {
namespace {

/// Handles at the front of `handles` that lie one after another in the file.
std::size_t run_length(std::span<const HandleId> handles) {
  std::size_t run = 1;
  while (run < handles.size() && index(handles[run]) == index(handles[run - 1]) + 1) ++run;
  return run;
}

}  // namespace

HostArena::HostArena(std::size_t handle_bytes) : Arena(handle_bytes) {
  host_memory::check_handle_bytes(handle_bytes);
  file_ = ::memfd_create("hyb-arena", MFD_CLOEXEC);
  if (file_ < 0) host_memory::refuse("memfd_create", 0, errno, bytes_held());
}

HostArena::~HostArena() { ::close(file_); }

std::byte* HostArena::reserve(std::size_t bytes) {
  return host_memory::reserve(bytes, bytes_held());
}

void HostArena::unreserve(std::byte* at, std::size_t bytes) {
  host_memory::unreserve(at, bytes, bytes_held());
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
  if (bytes > bytes_max())
    host_memory::refuse("growing past ulimit -f", bytes, EFBIG, bytes_held());
  if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
    host_memory::refuse("ftruncate", bytes, errno, bytes_held());
  }
  file_bytes_ = bytes;
}

void HostArena::release(HandleId handle) {
  table_.check_unmapped(handle);
  if (::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset(handle)), static_cast<off_t>(handle_bytes())) != 0) {
    host_memory::refuse("fallocate", handle_bytes(), errno, bytes_held());
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
      if (done > 0) host_memory::clear(at, done * handle_bytes());
      host_memory::refuse("mmap", bytes, error, bytes_held());
    }
    host_memory::prefer_huge_pages(to, bytes);
    done += run.size();
  }
  table_.map(handles);
}

void HostArena::unmap(std::byte* at, std::span<const HandleId> handles) {
  table_.check_mapped(handles);
  const std::size_t bytes = handles.size() * handle_bytes();
  if (!host_memory::clear(at, bytes)) {
    host_memory::refuse("unmapping", bytes, errno, bytes_held());
  }
  table_.unmap(handles);
}

void HostArena::fill(std::byte* at, std::size_t bytes, std::byte value) {
  std::memset(at, std::to_integer<int>(value), bytes);
}

bool HostArena::populate(std::byte* at, std::size_t bytes) const {
  return host_memory::populate(at, bytes);
}

std::size_t HostArena::mappings_max() const { return host_memory::mappings_max(); }

std::size_t HostArena::offset(HandleId handle) const {
  return static_cast<std::size_t>(index(handle)) * handle_bytes();
}

AnonymousArena::AnonymousArena(std::size_t handle_bytes) : Arena(handle_bytes) {
  host_memory::check_handle_bytes(handle_bytes);
}

void AnonymousArena::unreserve(std::byte* at, std::size_t bytes) {
  host_memory::unreserve(at, bytes, bytes_held());
}

void AnonymousArena::map(std::byte* at, std::span<const HandleId> handles) {
  for (const HandleId handle : handles) table_.check_exists(handle);
  const std::size_t bytes = handles.size() * handle_bytes();
  if (!map_bytes(at, bytes)) host_memory::refuse("mmap", bytes, errno, bytes_held());
  table_.map(handles);
}

void AnonymousArena::unmap(std::byte* at, std::span<const HandleId> handles) {
  table_.check_mapped(handles);
  const std::size_t bytes = handles.size() * handle_bytes();
  if (!free_bytes(at, bytes)) host_memory::refuse("unmapping", bytes, errno, bytes_held());
  table_.unmap(handles);
}

void AnonymousArena::fill(std::byte* at, std::size_t bytes, std::byte value) {
  std::memset(at, std::to_integer<int>(value), bytes);
}

bool AnonymousArena::populate(std::byte* at, std::size_t bytes) const {
  return host_memory::populate(at, bytes);
}

PrivateArena::PrivateArena(std::size_t handle_bytes, Unmapped unmapped)
    : AnonymousArena(handle_bytes), unmapped_(unmapped) {}

std::byte* PrivateArena::reserve(std::size_t bytes) {
  std::byte* const first = host_memory::reserve(bytes, bytes_held());
  if (unmapped_ == Unmapped::faults) return first;
  if (::mprotect(first, bytes, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    ::munmap(first, bytes);
    host_memory::refuse("mprotect", bytes, error, bytes_held());
  }
  host_memory::prefer_huge_pages(first, bytes);
  return first;
}

bool PrivateArena::map_bytes(std::byte* at, std::size_t bytes) {
  if (unmapped_ == Unmapped::zeros) return true;
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return false;
  }
  host_memory::prefer_huge_pages(at, bytes);
  return true;
}

bool PrivateArena::free_bytes(std::byte* at, std::size_t bytes) {
  return unmapped_ == Unmapped::zeros ? ::madvise(at, bytes, MADV_DONTNEED) == 0
                                      : host_memory::clear(at, bytes);
}

std::size_t PrivateArena::mappings_max() const {
  return unmapped_ == Unmapped::zeros ? std::numeric_limits<std::size_t>::max()
                                      : host_memory::mappings_max();
}

SharedArena::SharedArena(std::size_t handle_bytes) : AnonymousArena(handle_bytes) {}

std::byte* SharedArena::reserve(std::size_t bytes) {
  std::byte* const first = host_memory::reserve(bytes, bytes_held());
  if (::mmap(first, bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(first, bytes);
    host_memory::refuse("mmap", bytes, error, bytes_held());
  }
  host_memory::prefer_huge_pages(first, bytes);
  return first;
}

/// It was mapped when its range was reserved.
bool SharedArena::map_bytes(std::byte*, std::size_t) { return true; }

/// MADV_DONTNEED would drop pages from this process alone and keep them in memory for the others.
bool SharedArena::free_bytes(std::byte* at, std::size_t bytes) {
  return ::madvise(at, bytes, MADV_REMOVE) == 0;
}

std::size_t SharedArena::mappings_max() const { return std::numeric_limits<std::size_t>::max(); }

}  // namespace hyb::kernels
