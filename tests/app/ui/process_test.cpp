#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "app/ui/process.h"
#include "core/base/error.h"

namespace process_test {

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
  TEST_CASE("a signal raises a flag, and the exit code shows it") {
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

  TEST_CASE("where a turn may be lost, the same signal again is the same request") {
    CHECK(in_child([] {
            const ProcessGuard guard;
            {
              const StopOnce once;
              for (int i = 0; i < 5; ++i) ::raise(SIGINT);
              if (stop_signal() != SIGINT) return 99;
            }
            clear_stop_signal();
            return guard.exit_code(7);
          }) == 7);
    CHECK(in_child([] {
            const ProcessGuard guard;
            const StopOnce once;
            ::raise(SIGTERM);
            ::raise(SIGTERM);
            return 99;
          }) == 143);
  }

  TEST_CASE("the first signal is acknowledged while it is raised, the next ones are not again") {
    CHECK(in_child([] {
            const ProcessGuard guard;
            const StopOnce once;
            int ends[2];
            if (::pipe(ends) != 0) return 98;
            ::dup2(ends[1], STDERR_FILENO);
            set_stop_note("stopping");
            ::raise(SIGINT);
            ::raise(SIGINT);
            set_stop_note(nullptr);
            clear_stop_signal();
            ::raise(SIGINT);
            ::close(ends[1]);
            ::close(STDERR_FILENO);
            char text[32];
            return static_cast<int>(::read(ends[0], text, sizeof(text)));
          }) == 8);
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

  TEST_CASE("a stream is read to its end, up to a limit") {
    const StreamLimits limits = {
        .bytes_max = 5, .patience = std::chrono::milliseconds(1000), .waiting = "waiting"};
    const auto read_of = [&](const std::string& text) {
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
      ::close(ends[1]);
      std::string result;
      try {
        result = read_stream(ends[0], "stdin", limits);
      } catch (const hyb::Error& error) {
        result = error.what();
      }
      ::close(ends[0]);
      return result;
    };
    CHECK(read_of("") == "");
    CHECK(read_of("12345") == "12345");
    CHECK(read_of("123456") == "stdin: has more than 5 bytes, the most that are read");
    // One that never ends is not read for ever.
    const int zeros = ::open("/dev/zero", O_RDONLY);
    CHECK_THROWS_AS(read_stream(zeros, "stdin", limits), hyb::Error);
    ::close(zeros);
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  TEST_CASE("want of memory that no one catches ends in one line") {
    // In a thread, and where a thread is destroyed while the exception is under way.
    const auto ask = [] {
      volatile std::size_t much = std::size_t{1} << 62;  // not left out as of no use
      void* volatile kept = ::operator new(much);
      static_cast<void>(kept);
    };
    CHECK(in_child([&] {
            std::thread(ask).join();
            return 0;
          }) == 4);
    CHECK(in_child([&] {
            const std::thread other([] { ::pause(); });
            ask();
            return 0;
          }) == 4);
  }
#endif

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

namespace {

void wait_for(const std::atomic<int>& count, int least) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (count < least && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  REQUIRE(count >= least);
}

}  // namespace

TEST_SUITE("app/ui/background_work") {
  TEST_CASE("pieces are done until one says that it was the last") {
    std::atomic<int> pieces = 0;
    BackgroundWork work([&] { return ++pieces < 5; });
    wait_for(pieces, 5);
    work.stop();
    CHECK(pieces == 5);
  }

  TEST_CASE("nothing runs after stop(), which waits for the last piece") {
    for (const bool by_end_of_life : {false, true}) {
      std::atomic<int> begun = 0, ended = 0;
      {
        BackgroundWork work([&] {
          ++begun;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++ended;
          return true;
        });
        wait_for(begun, 3);
        if (!by_end_of_life) work.stop();
        if (!by_end_of_life) CHECK(begun == ended);
      }
      CHECK(begun == ended);
    }
  }

  TEST_CASE("it is done elsewhere, where no signal comes") {
    std::atomic<int> pieces = 0;
    std::thread::id where;
    bool is_blocked = false, faults_come = false;
    BackgroundWork work([&] {
      where = std::this_thread::get_id();
      sigset_t blocked;
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      is_blocked = sigismember(&blocked, SIGINT) == 1;
      faults_come = sigismember(&blocked, SIGBUS) == 0;
      ++pieces;
      return false;
    });
    wait_for(pieces, 1);
    work.stop();
    CHECK(where != std::this_thread::get_id());
    CHECK(is_blocked);
    CHECK(faults_come);
    sigset_t here;
    pthread_sigmask(SIG_BLOCK, nullptr, &here);
    CHECK(sigismember(&here, SIGINT) == 0);
  }

  TEST_CASE("stop() throws an error once; no work starts no thread") {
    std::atomic<int> pieces = 0;
    BackgroundWork work([&]() -> bool {
      ++pieces;
      throw std::runtime_error("no");
    });
    wait_for(pieces, 1);
    CHECK_THROWS_WITH(work.stop(), "no");
    CHECK_NOTHROW(work.stop());
    BackgroundWork none({});
    CHECK_NOTHROW(none.stop());
  }
}

}  // namespace process_test
