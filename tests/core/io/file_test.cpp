#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace file_test {

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

/// For its lifetime, system calls of this thread are interrupted a thousand times a second.
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
  TEST_CASE("bytes are read where they were written, up to the end of the file") {
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

  TEST_CASE("everything is written despite signals and a slow reader") {
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

  TEST_CASE("the errno of a failed transfer is returned") {
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

  TEST_CASE("folders are synced, other paths give an errno") {
    const TemporaryFolder folder;
    CHECK(sync_folder(folder.path()) == 0);
    CHECK(sync_folder("") == 0);
    CHECK(sync_folder(folder.path() / "none") == ENOENT);
    CHECK(sync_folder(folder.write("f", "")) == ENOTDIR);
  }
}

TEST_SUITE("core/io/file") {
  TEST_CASE("folders, FIFOs and missing files are refused by name, without blocking") {
    const TemporaryFolder folder;
    const auto fifo = folder.path() / "fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    CHECK(contains(model_error([&] { File file(fifo); }), "fifo: is not a regular file"));
    CHECK(contains(model_error([&] { File file(folder.path()); }), "not a regular file"));
    CHECK(contains(model_error([&] { File file(folder.path() / "x"); }), "x: can't be op"));
  }

  TEST_CASE("a dangling link is named with its target") {
    const TemporaryFolder folder;
    std::filesystem::create_symlink("blobs/123", folder.path() / "link");
    const std::string error = model_error([&] { File file(folder.path() / "link"); });
    CHECK(contains(error, "link: is a link to " + (folder.path() / "blobs/123").string()));
  }

  TEST_CASE("is_listed() also knows entries that can't be opened") {
    const TemporaryFolder folder;
    folder.write("f", "");
    std::filesystem::create_symlink("nowhere", folder.path() / "dangling");
    std::filesystem::create_symlink("loop", folder.path() / "loop");
    for (const char* name : {"f", "dangling", "loop"}) CHECK(is_listed(folder.path() / name));
    CHECK(!is_listed(folder.path() / "x"));
    CHECK(!is_listed(folder.path() / "x/y"));
  }

  TEST_CASE("a file is read whole, up to a limit") {
    const TemporaryFolder folder;
    const auto path = folder.write("f", "hello");
    CHECK(read_whole_file(path, 5) == "hello");
    CHECK(contains(model_error([&] { read_whole_file(path, 4); }), "5 bytes, at most 4"));
  }

  TEST_CASE("text is UTF-8 without its byte order mark, and no pointer of Git LFS") {
    using namespace std::string_view_literals;
    const TemporaryFolder folder;
    const auto text = [&](std::string_view bytes) {
      return read_text_file(folder.write("t", std::string(bytes)), 2000);
    };
    const auto refusal = [&](std::string_view bytes) {
      const std::string what = model_error([&] { text(bytes); });
      CHECK(what.starts_with((folder.path() / "t").string() + ": is "));
      return what;
    };
    CHECK(text("") == "");
    CHECK(text("\xEF\xBB\xBFone\xEF\xBB\xBF") == "one\xEF\xBB\xBF");
    CHECK(text("a\0bc"sv) == "a\0bc"sv);
    CHECK(contains(refusal("\xff\xfeh\0i\0"sv), "text in UTF-16, "));
    CHECK(contains(refusal("\xfe\xff\0h\0i"sv), "text in UTF-16, "));
    CHECK(contains(refusal("{\0}\0"sv), "text in UTF-16LE, "));
    CHECK(contains(refusal("\0{\0}"sv), "text in UTF-16BE, "));
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    CHECK(contains(refusal(pointer), "a pointer of Git LFS"));
    CHECK(text(" " + pointer) == " " + pointer);
    const std::string long_text = pointer + std::string(1024, 'x');
    CHECK(text(long_text) == long_text);
  }

  TEST_CASE("reads inside the file are complete, reads past its end name the end") {
    const TemporaryFolder folder;
    const File file(folder.write("f", "0123456789"));
    CHECK(file.size() == 10);
    std::array<std::byte, 4> four;
    file.read(6, four);
    CHECK(four[3] == std::byte{'9'});
    CHECK(contains(model_error([&] { file.read(7, four); }), "ends at byte 10; 1 more"));
  }

  TEST_CASE("a change of size or content is detected") {
    const TemporaryFolder folder;
    const auto path = folder.write("f", "0123456789");
    const File file(path);
    file.check_unchanged();
    std::filesystem::last_write_time(path, std::filesystem::file_time_type{});
    CHECK(contains(model_error([&] { file.check_unchanged(); }), "was written to"));
    std::filesystem::resize_file(path, 5);
    CHECK(contains(model_error([&] { file.check_unchanged(); }), "10 bytes at first, 5 bytes now"));
  }
}

namespace {

std::size_t entries(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

std::string text_of(const std::filesystem::path& path) {
  return read_whole_file(path, std::size_t{1} << 30);
}

unsigned rights(const std::filesystem::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777U;
}

}  // namespace

TEST_SUITE("core/io/atomic_file") {
  TEST_CASE("a file appears with commit, readable by its owner only") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    {
      AtomicFile file(path);
      file.write("hello ");
      CHECK(!is_listed(path));
      file.write("world");
      CHECK(file.size() == 11);
      file.commit();
    }
    CHECK(text_of(path) == "hello world");
    CHECK(entries(folder.path()) == 1);
    CHECK(rights(path) == 0600);
  }

  TEST_CASE("FileAccess::umask leaves the mode to the umask") {
    const TemporaryFolder folder;
    for (const mode_t mask : {022U, 0U, 077U}) {
      const mode_t before = ::umask(mask);
      write_atomically(folder.path() / "f", "x", FileAccess::umask);
      ::umask(before);
      CHECK(rights(folder.path() / "f") == (0666U & ~mask));
    }
  }

  TEST_CASE("without commit the old file stays and no temporary file is left") {
    const TemporaryFolder folder;
    const auto path = folder.write("f", "old");
    {
      AtomicFile file(path);
      file.write("new");
    }
    CHECK(text_of(path) == "old");
    CHECK(entries(folder.path()) == 1);
  }

  TEST_CASE("writes of all sizes arrive in order") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    std::string all;
    AtomicFile file(path);
    for (const std::size_t size : {1UL, 0UL, 1UL << 20, 3UL, (1UL << 20) + 1, 700000UL, 700000UL}) {
      const std::string part(size, static_cast<char>('a' + all.size() % 26));
      file.write(part);
      all += part;
      CHECK(file.size() == all.size());
    }
    file.commit();
    CHECK(text_of(path) == all);
  }

  TEST_CASE("the rest of a killed process is overwritten, its mode too") {
    const TemporaryFolder folder;
    const auto stale = folder.write("f.new", "a longer text than the new one");
    REQUIRE(::chmod(stale.c_str(), 0644) == 0);
    write_atomically(folder.path() / "f", "short");
    CHECK(text_of(folder.path() / "f") == "short");
    CHECK(entries(folder.path()) == 1);
    CHECK(rights(folder.path() / "f") == 0600);
  }

  TEST_CASE("two writers of one file: the second is refused, the first unharmed") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    AtomicFile first(path);
    first.write("first");
    CHECK(contains(error_text([&] { AtomicFile second(path); }), path.string()));
    first.commit();
    CHECK(text_of(path) == "first");
    write_atomically(path, "second");
    CHECK(text_of(path) == "second");
  }

  TEST_CASE("a folder, a missing folder and a FIFO are errors that name the path") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path() / "d.new");
    REQUIRE(::mkfifo((folder.path() / "p.new").c_str(), 0600) == 0);
    for (const char* name : {"d", "p", "missing/f"}) {
      const auto path = folder.path() / name;
      CHECK(contains(error_text([&] { AtomicFile file(path); }), path.string()));
    }
    std::filesystem::create_directory(folder.path() / "taken");
    folder.write("taken/inside", "x");
    CHECK(!error_text([&] { write_atomically(folder.path() / "taken", "x"); }).empty());
    CHECK(!is_listed(folder.path() / "taken.new"));
  }

  TEST_CASE("a full disk is an error and leaves the old file") {
    // A link to /dev/full would be refused, so a limit on file sizes plays the full disk.
    const TemporaryFolder folder;
    const auto path = folder.write("f", "old");
    std::filesystem::create_symlink("/dev/full", folder.path() / "f.new");
    CHECK(!error_text([&] { write_atomically(path, "x"); }).empty());
    CHECK(text_of(path) == "old");
  }
}

TEST_SUITE("core/io/checksum") {
  TEST_CASE("the checksum is XXH3 of 64 bits, as published") {
    // XXH3_64bits of no bytes and of "abc" with seed 0, from the specification's test values.
    CHECK(checksum({}) == 0x2D06800538D394C2U);
    CHECK(checksum(std::as_bytes(std::span(std::string_view("abc")))) == 0x78AF5F94892F3950U);
  }

  TEST_CASE("another seed gives another sum") {
    const auto bytes = std::as_bytes(std::span(std::string_view("abc")));
    CHECK(checksum(bytes, 1) != checksum(bytes, 2));
  }
}

TEST_SUITE("core/io/quote_name") {
  TEST_CASE("control characters are escaped") {
    CHECK(quote_name("a.b") == "\"a.b\"");
    CHECK(quote_name("a\x1b[0m\n\x7f") == "\"a\\x1b[0m\\x0a\\x7f\"");
    CHECK(quote_name("\xc2\x9b") == "\"\\xc2\\x9b\"");
    CHECK(quote_name("\xc2\xa0\xc3\xa9") == "\"\xc2\xa0\xc3\xa9\"");
  }

  TEST_CASE("long names are cut between characters") {
    CHECK(quote_name(std::string(200, 'x')) == "\"" + std::string(200, 'x') + "\"");
    std::string name(199, 'x');
    name += "\xc3\xa9 and more";
    CHECK(quote_name(name) == "\"" + std::string(199, 'x') + "\"...");
  }
}

}  // namespace file_test
