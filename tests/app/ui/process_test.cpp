#include "app/ui/process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "core/base/error.h"

using namespace hyb::app;

namespace {

/// Runs `action` in a process of its own; its exit code, or 1000 + the signal that ended it.
int in_child(const std::function<int()>& action) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGABRT}) ::signal(signal, SIG_DFL);
    ::_exit(action());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void point_stdout_at(const char* path) { ::dup2(::open(path, O_WRONLY), STDOUT_FILENO); }

}  // namespace

TEST_SUITE("app/ui/process") {
  TEST_CASE("a signal raises a flag, and the exit code tells of it") {
    for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 143}}) {
      CHECK(in_child([signal = signal] {
              const ProcessGuard guard;
              if (stop_signal() != 0) return 99;
              ::raise(signal);
              return guard.exit_code(0);
            }) == code);
    }
    CHECK(in_child([] {
            const ProcessGuard guard;
            ::raise(SIGINT);
            clear_stop_signal();
            ::raise(SIGINT);
            clear_stop_signal();
            return guard.exit_code(7);
          }) == 7);
  }

  TEST_CASE("the same signal again ends at once, after the last words") {
    CHECK(in_child([] {
            const ProcessGuard guard;
            ::raise(SIGINT);
            ::raise(SIGINT);
            return 99;
          }) == 130);
    CHECK(in_child([] {
            const ProcessGuard guard;
            set_last_words([] { ::_exit(42); });
            ::raise(SIGTERM);
            ::raise(SIGTERM);
            return 99;
          }) == 42);
  }

  TEST_CASE("where there is nothing to lose the first signal ends") {
    CHECK(in_child([] {
            const ProcessGuard guard;
            const StopAtOnce now;
            ::raise(SIGINT);
            return 99;
          }) == 130);
    CHECK(in_child([] {
            const ProcessGuard guard;
            ::raise(SIGTERM);
            const StopAtOnce now;
            return 99;
          }) == 143);
    CHECK(in_child([] {
            const ProcessGuard guard;
            { const StopAtOnce now; }
            ::raise(SIGINT);
            return 0;
          }) == 0);
  }

  TEST_CASE("signals ignored by the parent stay ignored") {
    CHECK(in_child([] {
            ::signal(SIGHUP, SIG_IGN);
            const ProcessGuard guard;
            ::raise(SIGHUP);
            return stop_signal();
          }) == 0);
  }

  TEST_CASE("writing to stdout: a reader that left, a full disk, a closed descriptor") {
    CHECK(in_child([] {
            const ProcessGuard guard;
            int ends[2];
            if (::pipe(ends) != 0) return 98;
            ::dup2(ends[1], STDOUT_FILENO);
            ::close(ends[0]);
            return write_stdout("text") ? 99 : 0;
          }) == 0);
    CHECK(in_child([] {
            const ProcessGuard guard;
            point_stdout_at("/dev/full");
            try {
              write_stdout("text");
            } catch (const hyb::Error& error) {
              return std::string(error.what()).find("No space") != std::string::npos ? 0 : 97;
            }
            return 99;
          }) == 0);
    CHECK(in_child([] {
            ::close(STDOUT_FILENO);
            const ProcessGuard guard;
            if (::open("/dev/null", O_WRONLY) == STDOUT_FILENO) return 98;
            try {
              write_stdout("text");
            } catch (const hyb::Error&) {
              return 0;
            }
            return 99;
          }) == 0);
  }

  TEST_CASE("all of a long text is written to a slow, non-blocking reader") {
    CHECK(in_child([] {
            const ProcessGuard guard;
            int ends[2];
            if (::pipe2(ends, O_NONBLOCK) != 0) return 98;
            const std::string text(1'000'000, 'x');
            if (::fork() == 0) {
              ::dup2(ends[1], STDOUT_FILENO);
              ::_exit(write_stdout(text) ? 0 : 1);
            }
            ::close(ends[1]);
            ::fcntl(ends[0], F_SETFL, 0);
            std::size_t sum = 0;
            char bytes[4096];
            for (ssize_t count = 0; (count = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
              sum += static_cast<std::size_t>(count);
            }
            return sum == text.size() ? 0 : 99;
          }) == 0);
  }
}
