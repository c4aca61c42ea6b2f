#include "core/io/atomic_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::testing;

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
  TEST_CASE("a file appears with commit, for its owner only") {
    const TemporaryFolder folder;
    const auto path = folder.path() / "f";
    {
      AtomicFile file(path);
      file.write("hello ");
      CHECK(!is_listed(path));
      file.write("world");
      file.rewrite_front(std::as_bytes(std::span(std::string_view("J"))));
      CHECK(file.size() == 11);
      file.commit();
    }
    CHECK(text_of(path) == "Jello world");
    CHECK(entries(folder.path()) == 1);
    CHECK(rights(path) == 0600);
  }

  TEST_CASE("where it is asked for, the umask says who may read") {
    const TemporaryFolder folder;
    for (const mode_t mask : {022U, 0U, 077U}) {
      const mode_t before = ::umask(mask);
      write_atomically(folder.path() / "f", "x", FileAccess::umask);
      ::umask(before);
      CHECK(rights(folder.path() / "f") == (0666U & ~mask));
    }
  }

  TEST_CASE("without commit the old file stays and nothing is left") {
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

  TEST_CASE("what a killed process left is overwritten, its rights too") {
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
    // /dev/full stands for it: a link would be refused, so the limit of file sizes is the rule
    // here.
    const TemporaryFolder folder;
    const auto path = folder.write("f", "old");
    std::filesystem::create_symlink("/dev/full", folder.path() / "f.new");
    CHECK(!error_text([&] { write_atomically(path, "x"); }).empty());
    CHECK(text_of(path) == "old");
  }
}
