#include "kernels/arena/host_ranges.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace hyb::kernels::host {
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

}  // namespace hyb::kernels::host
