#include "core/io/descriptor_io.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "core/io/descriptor.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

Descriptor open_file(const std::filesystem::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
}

std::string letters(std::size_t count) {
  std::string text(count, ' ');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>('a' + i * 7 % 26);
  return text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// While it lives, this thread's system calls are interrupted a thousand times a second.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, &before_);
    const itimerval often{{0, 1000}, {0, 1000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Interruptions() {
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

TEST_SUITE("core/io/descriptor_io") {
  TEST_CASE("what is written somewhere is read there, as far as the file goes") {
    const TemporaryFolder folder;
    const Descriptor file = open_file(folder.path() / "f", O_RDWR | O_CREAT);
    const std::string text = letters(100000);
    CHECK(write_at(file.number(), 50, bytes_of(text)) == 0);
    CHECK(write_at(file.number(), 100050, {}) == 0);
    std::string back(text.size() + 10, '?');
    const ReadResult read = read_at(file.number(), 50, std::as_writable_bytes(std::span(back)));
    CHECK(read.code == 0);
    CHECK(read.bytes == text.size());
    CHECK(back == text + std::string(10, '?'));
    CHECK(read_at(file.number(), 200000, std::as_writable_bytes(std::span(back))).bytes == 0);
  }

  TEST_CASE("all is written though signals and a slow reader cut it in pieces") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const Descriptor out(ends[0]);
    const std::string text = letters(1 << 20);
    std::string arrived;
    sigset_t alarm, old;
    ::sigemptyset(&alarm);
    ::sigaddset(&alarm, SIGALRM);
    ::pthread_sigmask(SIG_BLOCK, &alarm, &old);  // the reader's thread inherits it
    std::thread reader([&] {
      std::array<char, 20000> piece{};
      for (ssize_t count; (count = ::read(out.number(), piece.data(), piece.size())) > 0;) {
        arrived.append(piece.data(), static_cast<std::size_t>(count));
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    });
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
    {
      const Descriptor in(ends[1]);
      const Interruptions interruptions;
      CHECK(write_all(in.number(), text) == 0);
    }
    reader.join();
    CHECK(arrived == text);
  }

  TEST_CASE("what stops a transfer is told") {
    const TemporaryFolder folder;
    const std::string text = letters(1000);
    CHECK(write_all(open_file("/dev/full", O_WRONLY).number(), text) == ENOSPC);
    const Descriptor reader = open_file(folder.write("f", text), O_RDONLY);
    CHECK(write_at(reader.number(), 0, bytes_of(text)) == EBADF);
    std::string back(10, '?');
    CHECK(read_at(open_file(folder.path(), O_RDONLY).number(), 0,
                  std::as_writable_bytes(std::span(back)))
              .code == EISDIR);

    const Descriptor writer = open_file(folder.path() / "f", O_WRONLY);
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit narrow{1500, old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &narrow) == 0);
    const int code = write_at(writer.number(), 1000, bytes_of(text));
    ::setrlimit(RLIMIT_FSIZE, &old);
    ::signal(SIGXFSZ, handler);
    CHECK(code == EFBIG);
    CHECK(std::filesystem::file_size(folder.path() / "f") == 1500);
  }

  TEST_CASE("folders are synced, what is none is told") {
    const TemporaryFolder folder;
    CHECK(sync_folder(folder.path()) == 0);
    CHECK(sync_folder("") == 0);
    CHECK(sync_folder(folder.path() / "none") == ENOENT);
    CHECK(sync_folder(folder.write("f", "")) == ENOTDIR);
  }
}
