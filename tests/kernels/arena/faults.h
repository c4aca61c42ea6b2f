#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace hyb::kernels::testing {

/// Whether reading the byte at `at` ends a process, tried in a child.
inline bool read_faults(const void* at) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    const volatile std::byte* const byte = static_cast<const std::byte*>(at);
    _exit(std::to_integer<int>(*byte) >= 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

}  // namespace hyb::kernels::testing
