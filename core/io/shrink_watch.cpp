#include "core/io/shrink_watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

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

// The one mutable global: a signal handler can be given nothing else. Lock-free, because the
// handler may interrupt any code; never allocated, because it may not allocate.
std::array<Watch, 1024> watches;
static_assert(std::atomic<Use>::is_always_lock_free);
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

struct sigaction previous;  // written once, before the handler can run

void write_error(const char* text) {
  // Nothing can be done about a stderr that takes no text.
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
  // Not ours: the fault happens again under whatever handled it before.
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

}  // namespace

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

}  // namespace hyb
