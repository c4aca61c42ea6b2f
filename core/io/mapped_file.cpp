#include "core/io/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace hyb {

namespace {

enum class Use : int { free, filling, live };

struct Watch {
  std::atomic<Use> use;
  std::atomic<std::uintptr_t> begin;
  std::atomic<std::uintptr_t> end;
  std::array<char, 1024> path;
};

// A global, because a signal handler takes no context. Lock-free, because the handler may interrupt
// any code; of fixed size, because it may not allocate.
std::array<Watch, 1024> watches;
static_assert(std::atomic<Use>::is_always_lock_free);
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

struct sigaction previous;  // written once, before the handler can run

void write_error(const char* text) {
  // A failing stderr has no remedy here.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void on_sigbus(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool is_fault = info->si_code > 0;  // sent by the kernel, not by kill()
  for (const Watch& watch : watches) {
    if (!is_fault || watch.use.load(std::memory_order_acquire) != Use::live) continue;
    if (address < watch.begin.load() || address >= watch.end.load()) continue;
    write_error("hyb: error: ");
    write_error(watch.path.data());
    write_error(
        ": the file shrank while it was being read, or its disk failed; restore it and start "
        "again\n");
    ::_exit(static_cast<int>(ErrorKind::model));
  }
  // Not ours: the fault is raised again under the previous handler.
  ::sigaction(SIGBUS, &previous, nullptr);
  if (!is_fault) ::raise(SIGBUS);
}

bool install_handler() {
  ::sigaction(SIGBUS, nullptr, &previous);
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  return ::sigaction(SIGBUS, &action, nullptr) == 0;
}

void set_path(Watch& watch, std::string_view path) {
  const std::size_t length = std::min(path.size(), watch.path.size() - 1);
  for (std::size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(path[i]);
    watch.path[i] = byte < 0x20 || byte == 0x7F ? '?' : path[i];
  }
  watch.path[length] = '\0';
}

/// Registers [begin, begin + size) as the mapping of the file `path` with the SIGBUS handler.
/// Returns the index for unwatch_mapping. Thread-safe. Throws Error(runtime) when 1024 files are
/// mapped already.
int watch_mapping(const void* begin, std::size_t size, std::string_view path) {
  static const bool installed = install_handler();
  require(installed, "watch_mapping: a SIGBUS handler can be installed");
  for (std::size_t i = 0; i < watches.size(); ++i) {
    Watch& watch = watches[i];
    Use expected = Use::free;
    if (!watch.use.compare_exchange_strong(expected, Use::filling)) continue;
    set_path(watch, path);
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    watch.begin.store(address);
    watch.end.store(address + size);
    watch.use.store(Use::live, std::memory_order_release);
    return static_cast<int>(i);
  }
  throw Error(ErrorKind::runtime,
              std::string(path) + ": more than 1024 files would be mapped at the same time");
}

void unwatch_mapping(int watch) {
  watches[static_cast<std::size_t>(watch)].use.store(Use::free, std::memory_order_release);
}

}  // namespace

MappedFile::MappedFile(const File& file) : path_(file.path()) {
  file.check_unchanged();
  require(file.size() <= std::numeric_limits<std::ptrdiff_t>::max(), "MappedFile: size");
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return;  // mmap refuses a length of 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) {
    throw Error(errno == ENOMEM ? ErrorKind::memory : ErrorKind::model,
                path_.string() + ": can't be mapped: " + std::generic_category().message(errno));
  }
  try {
    watch_ = watch_mapping(address, size, path_.native());
  } catch (...) {
    ::munmap(address, size);
    throw;
  }
  data_ = static_cast<std::byte*>(address);
  size_ = size;
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      watch_(std::exchange(other.watch_, -1)) {}

void MappedFile::close() {
  if (data_ == nullptr) return;
  unwatch_mapping(watch_);
  ::munmap(data_, size_);
}

void MappedFile::drop(std::size_t offset, std::size_t length) const {
  require(offset <= size_ && length <= size_ - offset, "MappedFile::drop: range inside the file");
  if (length == 0) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;
  // A failure costs memory, not correctness.
  ::madvise(data_ + begin, offset + length - begin, MADV_DONTNEED);
}

}  // namespace hyb
