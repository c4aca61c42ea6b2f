#include "core/io/file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>

#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/io/file") {
  TEST_CASE("folders, FIFOs and missing files are refused by name, without waiting") {
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

  TEST_CASE("what is listed is told from what is not, also where it can't be opened") {
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

  TEST_CASE("reads inside the file are whole, reads past its end say where it ends") {
    const TemporaryFolder folder;
    const File file(folder.write("f", "0123456789"));
    CHECK(file.size() == 10);
    std::array<std::byte, 4> four;
    file.read(6, four);
    CHECK(four[3] == std::byte{'9'});
    CHECK(contains(model_error([&] { file.read(7, four); }), "ends at byte 10; 1 more"));
  }

  TEST_CASE("a change of size or of bytes is noticed") {
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
