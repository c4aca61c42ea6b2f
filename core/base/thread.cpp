#include "core/base/thread.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/worker_signals.h"

namespace hyb {
namespace {

/// Returns whether the system refuses processes and threads to this user. A thread's error is the
/// same (EAGAIN) where there is no memory for its stack; a process that shares ours needs none.
bool is_at_limit_of_processes() {
  const pid_t process = ::vfork();
  if (process == 0) ::_exit(0);
  if (process < 0) return true;
  while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
  return false;
}

}  // namespace

std::jthread start_thread(const std::string& whose, std::function<void()> body) {
  try {
    const WorkerSignals signals;
    return std::jthread(std::move(body));
  } catch (const std::system_error& error) {
    const Error cause = error_of(error);
    throw Error(cause.kind(), whose + ": " + cause.what());
  }
}

Error error_of(const std::system_error& error) {
  if (error.code() == std::errc::not_enough_memory) return {ErrorKind::memory, error.what()};
  if (error.code() != std::errc::resource_unavailable_try_again) {
    return {ErrorKind::runtime, error.what()};
  }
  if (!is_at_limit_of_processes()) {
    return {ErrorKind::memory, "no memory for one more thread; ask for less with --memory"};
  }
  return {ErrorKind::runtime,
          "a thread cannot be started: " + error.code().message() +
              "; the limit is on processes and threads of this user (ulimit -u) or of its control "
              "group (pids.max)"};
}

}  // namespace hyb
