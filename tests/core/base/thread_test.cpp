#include "core/base/thread.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <string>

using hyb::Error;
using hyb::ErrorKind;

TEST_SUITE("core/base/thread") {
  TEST_CASE("a failed call of the library says whether memory was short") {
    const auto error_for = [](std::errc code) {
      return hyb::error_of(std::system_error(std::make_error_code(code)));
    };
    CHECK(error_for(std::errc::permission_denied).kind() == ErrorKind::runtime);
    CHECK(std::string(error_for(std::errc::permission_denied).what()) == "Permission denied");
    CHECK(error_for(std::errc::not_enough_memory).kind() == ErrorKind::memory);
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  TEST_CASE("a thread without memory for its stack does not fit") {
    const pid_t child = ::fork();
    if (child == 0) {
      // A stack larger than all addresses that are left.
      const rlimit little = {.rlim_cur = std::size_t{1} << 30, .rlim_max = RLIM_INFINITY};
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      pthread_attr_setstacksize(&attributes, std::size_t{1} << 40);
      pthread_setattr_default_np(&attributes);
      ::setrlimit(RLIMIT_AS, &little);
      try {
        hyb::start_thread("a test", [] {});
        ::_exit(98);
      } catch (const Error& error) {
        const bool is_named = std::string(error.what()).starts_with("a test: no memory");
        ::_exit(is_named ? static_cast<int>(error.kind()) : 97);
      }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == static_cast<int>(ErrorKind::memory));
  }
#endif
}
