#include "core/base/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/files.h"

namespace log_test {

using namespace hyb;

namespace {

/// What a process with this log level writes to stderr: one message of each level.
std::string logged_at(log::Level level) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("stderr", "");
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen(path.c_str(), "w", stderr) == nullptr) ::_exit(1);
    log::set_colour(false);
    log::set_level(level);
    log::debug("one");
    log::info("two");
    log::warning("three");
    log::error("four");
    std::fflush(stderr);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return testing::content(path);
}

}  // namespace

TEST_SUITE("core/base/log") {
  TEST_CASE("every level has a name") {
    for (std::size_t i = 0; i < log::level_names.size(); ++i) {
      CHECK(log::level_from_name(log::level_names[i]) == static_cast<log::Level>(i));
    }
    CHECK_FALSE(log::level_from_name("warning"));
    CHECK_FALSE(log::level_from_name(""));
  }

  TEST_CASE("messages below the level are dropped") {
    const std::string errors = "hyb: error: four\n";
    const std::string warnings = "hyb: warning: three\n" + errors;
    const std::string infos = "hyb: info: two\n" + warnings;
    const std::string all = "hyb: debug: one\n" + infos;
    CHECK(logged_at(log::Level::trace) == all);
    CHECK(logged_at(log::Level::debug) == all);
    CHECK(logged_at(log::Level::info) == infos);
    CHECK(logged_at(log::Level::warn) == warnings);
    CHECK(logged_at(log::Level::error) == errors);
    CHECK(logged_at(log::Level::off).empty());
  }
}

}  // namespace log_test
