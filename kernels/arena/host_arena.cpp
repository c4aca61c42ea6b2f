#include "kernels/arena/host_arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace hyb::kernels {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::byte* map_nothing(void* at, std::size_t bytes, int flags) {
  void* const mapped =
      ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

/// Handles at the front of `handles` that lie one behind the other in the file.
std::size_t run_length(std::span<const HandleId> handles) {
  std::size_t run = 1;
  while (run < handles.size() && index(handles[run]) == index(handles[run - 1]) + 1) ++run;
  return run;
}

}  // namespace

HostArena::HostArena(std::size_t handle_bytes) : Arena(handle_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  require(handle_bytes > 0 && handle_bytes % page == 0, "arena: a handle is whole pages");
  file_ = ::memfd_create("hyb-arena", MFD_CLOEXEC);
  if (file_ < 0) refuse("memfd_create", 0, errno);
}

HostArena::~HostArena() { ::close(file_); }

std::byte* HostArena::reserve(std::size_t bytes) {
  // Aligned so that the system may use huge pages, where it does so for shared memory.
  std::byte* const first = map_nothing(nullptr, bytes + huge_page, 0);
  if (first == nullptr) refuse("reserving addresses", bytes, errno);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % huge_page;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + bytes, huge_page - before);
  return first + before;
}

void HostArena::unreserve(std::byte* at, std::size_t bytes) {
  if (::munmap(at, bytes) != 0) refuse("munmap", bytes, errno);
}

HandleId HostArena::create() {
  const HandleId handle = table_.add();
  const std::size_t end = offset(handle) + handle_bytes();
  if (end > file_bytes_) {
    if (::ftruncate(file_, static_cast<off_t>(end)) != 0) {
      const int error = errno;
      table_.remove(handle);
      refuse("ftruncate", end, error);
    }
    file_bytes_ = end;
  }
  return handle;
}

void HostArena::release(HandleId handle) {
  table_.check_unmapped(handle);
  if (::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset(handle)), static_cast<off_t>(handle_bytes())) != 0) {
    refuse("fallocate", handle_bytes(), errno);
  }
  table_.remove(handle);
}

void HostArena::map(std::byte* at, std::span<const HandleId> handles) {
  for (const HandleId handle : handles) table_.check_exists(handle);
  for (std::size_t done = 0; done < handles.size();) {
    const auto run = handles.subspan(done, run_length(handles.subspan(done)));
    void* const to = at + done * handle_bytes();
    const std::size_t bytes = run.size() * handle_bytes();
    if (::mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
               static_cast<off_t>(offset(run.front()))) == MAP_FAILED) {
      const int error = errno;
      if (done > 0) map_nothing(at, done * handle_bytes(), MAP_FIXED);
      refuse("mmap", bytes, error);
    }
    // A hint only: where huge pages are off the bytes are the same.
    if (bytes >= huge_page) ::madvise(to, bytes, MADV_HUGEPAGE);
    done += run.size();
  }
  table_.map(handles);
}

void HostArena::unmap(std::byte* at, HandleId handle) {
  table_.check_mapped(handle);
  if (map_nothing(at, handle_bytes(), MAP_FIXED) == nullptr) {
    refuse("unmapping", handle_bytes(), errno);
  }
  table_.unmap(handle);
}

ExportedHandle HostArena::export_handle(HandleId handle) const {
  table_.check_exists(handle);
  const int copy = ::fcntl(file_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) refuse("duplicating the descriptor", handle_bytes(), errno);
  return {.fd = copy, .offset = offset(handle), .bytes = handle_bytes()};
}

void HostArena::fill(std::byte* at, std::size_t bytes, std::byte value) {
  std::memset(at, std::to_integer<int>(value), bytes);
}

std::size_t HostArena::mappings_max() const {
  constexpr std::size_t kept_for_others = 4096;  // thread stacks, the allocator, mapped files
  std::size_t limit = 65530;                     // the kernel's default, where /proc is hidden
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  std::size_t used = kept_for_others;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++used;
  return limit > used ? limit - used : 0;
}

std::size_t HostArena::offset(HandleId handle) const {
  return static_cast<std::size_t>(index(handle)) * handle_bytes();
}

void HostArena::refuse(const char* call, std::size_t bytes, int error) const {
  throw Error(ErrorKind::memory,
              fmt::format("memory: {} of {} bytes was refused ({}); {} bytes are in handles; use a "
                          "smaller --memory",
                          call, bytes, std::generic_category().message(error), bytes_held()));
}

}  // namespace hyb::kernels
