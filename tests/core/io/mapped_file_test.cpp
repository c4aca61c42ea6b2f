#include "core/io/mapped_file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/support/files.h"

namespace mapped_file_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

struct Ending {
  int status;  // as waitpid gives it
  std::string errors;
};

/// Runs `action` in a child process and collects its exit status and its stderr.
template <typename Action>
Ending in_child(const Action& action) {
  std::array<int, 2> ends;
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    action();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ending ending = {};
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    ending.errors.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  ::waitpid(child, &ending.status, 0);
  return ending;
}

}  // namespace

TEST_SUITE("core/io/mapped_file") {
  TEST_CASE("a mapping shows the bytes of the file, also after drop and move") {
    const TemporaryFolder folder;
    std::string text(100'000, 'a');
    text[65'000] = 'b';
    MappedFile file(folder.write("f", text));
    CHECK(file.bytes().size() == text.size());
    CHECK(file.bytes()[65'000] == std::byte{'b'});
    file.drop(0, text.size());
    file.drop(65'000, 1);
    CHECK(file.bytes()[65'000] == std::byte{'b'});
    const std::byte* data = file.bytes().data();
    MappedFile moved = std::move(file);
    CHECK(moved.bytes().data() == data);
    CHECK(moved.bytes()[65'000] == std::byte{'b'});
  }

  TEST_CASE("an empty file has no bytes") {
    const TemporaryFolder folder;
    const MappedFile file(folder.write("f", ""));
    CHECK(file.bytes().empty());
    file.drop(0, 0);
  }

  TEST_CASE("a file that shrinks ends in exit status 3 and one line that names it") {
    const TemporaryFolder folder;
    const auto path = folder.write("weights", std::string(50'000, 'a'));
    const Ending ending = in_child([&] {
      const MappedFile other(folder.write("other", std::string(50'000, 'a')));
      const MappedFile file(path);
      std::filesystem::resize_file(path, 100);
      volatile std::byte touched = file.bytes()[40'000];
      static_cast<void>(touched);
    });
    REQUIRE(WIFEXITED(ending.status));
    CHECK(WEXITSTATUS(ending.status) == 3);
    CHECK(ending.errors.starts_with("hyb: error: " + path.string() + ": the file shrank"));
    CHECK(ending.errors.find('\n') == ending.errors.size() - 1);
  }

  TEST_CASE("a SIGBUS that is not ours keeps its effect") {
    const TemporaryFolder folder;
    const auto path = folder.write("weights", std::string(50'000, 'a'));
    const Ending sent = in_child([&] {
      const MappedFile file(path);
      ::raise(SIGBUS);
    });
    // The default ends the process by the signal; the handlers of AddressSanitizer and
    // ThreadSanitizer by a status of their own.
    const bool by_signal = WIFSIGNALED(sent.status) && WTERMSIG(sent.status) == SIGBUS;
    const int status = WIFEXITED(sent.status) ? WEXITSTATUS(sent.status) : 0;
    const bool by_sanitizer = status == 1 || status == 66;
    CHECK((by_signal || by_sanitizer));
  }

  TEST_CASE("slots of the watched mappings are freed") {
    const TemporaryFolder folder;
    const File file(folder.write("f", "x"));
    for (int round = 0; round < 3000; ++round) CHECK(MappedFile(file).bytes().size() == 1);
  }
}

}  // namespace mapped_file_test
