#include "app/ui/history.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/file_content.h"
#include "tests/support/temporary_folder.h"

using namespace hyb::app;
using hyb::testing::content;
using hyb::testing::TemporaryFolder;

namespace {

mode_t mode(const std::filesystem::path& path) {
  struct stat about {};
  REQUIRE(::stat(path.c_str(), &about) == 0);
  return about.st_mode & 0777U;
}

}  // namespace

TEST_SUITE("app/ui/history") {
  TEST_CASE("entries come back in the next run, whatever is in them") {
    const TemporaryFolder folder;
    const auto file = folder.path() / "state" / "history";
    const std::string entries[] = {"plain", "two\nlines", "back\\slash\\n", "漢字 \x1b[31m", "\\"};
    {
      History history(file);
      for (const std::string& entry : entries) history.add(entry);
    }
    CHECK(mode(file) == 0600);
    CHECK(mode(file.parent_path()) == 0700);
    const History again(file);
    CHECK(again.entries() == std::vector<std::string>(std::begin(entries), std::end(entries)));
  }

  TEST_CASE("empty and repeated entries are left out, huge ones stay out of the file") {
    const TemporaryFolder folder;
    const auto file = folder.path() / "history";
    History history(file);
    history.add("");
    history.add("a");
    history.add("a");
    history.add(std::string(History::stored_bytes_max + 1, 'x'));
    CHECK(history.entries().size() == 2);
    CHECK(content(file) == "a\n");
  }

  TEST_CASE("the file stays small") {
    const TemporaryFolder folder;
    std::string lines;
    for (int i = 0; i < 3000; ++i) lines += "entry " + std::to_string(i) + '\n';
    const auto file = folder.write("history", lines);
    const History history(file);
    CHECK(history.entries().size() == History::entries_max);
    CHECK(history.entries().back() == "entry 2999");
    CHECK(History(file).entries() == history.entries());
    CHECK(content(file).size() < lines.size() / 2);
    CHECK(mode(file) == 0600);
  }

  TEST_CASE("a file of many megabytes or of one endless line does no harm") {
    const TemporaryFolder folder;
    const auto file = folder.write("history", std::string(9'000'000, 'x') + "\nlast\n");
    CHECK(History(file).entries() == std::vector<std::string>{"last"});
    const auto endless = folder.write("endless", std::string(9'000'000, 'x'));
    CHECK(History(endless).entries().size() == 1);
  }

  TEST_CASE("a file that cannot be used is given up, entries of the run stay") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path() / "history");
    for (const auto& path :
         {folder.path() / "history", std::filesystem::path("/dev/null/x/history")}) {
      History history(path);
      history.add("a");
      history.add("b");
      CHECK(history.entries().size() == 2);
    }
    const auto fifo = folder.path() / "fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    History history(fifo);  // must not wait for a writer
    history.add("a");
    CHECK(history.entries().size() == 1);
  }

  TEST_CASE("bytes that are no UTF-8 are replaced") {
    const TemporaryFolder folder;
    const History history(folder.write("history", "ok\n\xff\xfe\n"));
    REQUIRE(history.entries().size() == 2);
    CHECK(history.entries()[1] == "\uFFFD\uFFFD");
  }
}
