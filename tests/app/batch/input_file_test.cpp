#include "app/batch/input_file.h"

#include <doctest/doctest.h>

#include <fstream>

#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

struct Written {
  explicit Written(const std::string& text) {
    std::ofstream(folder.path() / "in", std::ios::binary) << text;
  }
  InputFile scan(std::optional<LineFormat> format = {}) const {
    InputFile input = InputFile::open((folder.path() / "in").string(), folder.path());
    input.scan(format);
    return input;
  }
  TemporaryFolder folder;
};

std::vector<std::string> ids(const InputFile& input) {
  std::vector<std::string> ids;
  for (const InputLine& line : input.lines()) ids.push_back(input.read(line).custom_id);
  return ids;
}

}  // namespace

TEST_SUITE("app/batch/input_file") {
  TEST_CASE("blank lines, CRLF, a byte order mark and a missing last line break") {
    const Written written("\xEF\xBB\xBFone\r\n\r\n   \n  two\nthree");
    const InputFile input = written.scan();
    CHECK(input.format() == LineFormat::text);
    CHECK(ids(input) == std::vector<std::string>{"line-1", "line-4", "line-5"});
    CHECK(input.read(input.lines()[0]).body["prompt"] == "one");
    CHECK(input.read(input.lines()[1]).body["prompt"] == "  two");
    CHECK(input.read(input.lines()[2]).body["prompt"] == "three");
    CHECK(Written("").scan().lines().empty());
    CHECK(Written("\n\r\n \n").scan().lines().empty());
  }

  TEST_CASE("the first line decides, and what contradicts it is asked about") {
    const Written jsonl("\n {\"prompt\":\"a\",\"id\":\"x\"}\nbroken\n{\"prompt\":\"b\"}\n");
    const InputFile input = jsonl.scan();
    CHECK(input.format() == LineFormat::jsonl);
    CHECK(ids(input) == std::vector<std::string>{"x", "line-3", "line-4"});
    CHECK(input.read(input.lines()[1]).failure->code == "invalid_json");

    const Written mixed("broken\n{\"prompt\":\"b\"}\n");
    CHECK(contains(error_text([&] { mixed.scan(); }), "line 2 looks like JSON"));
    CHECK(mixed.scan(LineFormat::jsonl).lines().size() == 2);
    CHECK(
        mixed.scan(LineFormat::text).read(mixed.scan(LineFormat::text).lines()[1]).body["prompt"] ==
        "{\"prompt\":\"b\"}");
  }

  TEST_CASE("the same custom_id twice is refused, with both lines") {
    const std::string text = error_text([] {
      Written(
          "{\"prompt\":\"a\",\"id\":\"x\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\",\"id\":\"x\"}\n")
          .scan();
    });
    CHECK(contains(text, "lines 1 and 3"));
    CHECK(contains(text, "\"x\""));
    CHECK_THROWS_AS(Written("{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"id\":\"line-1\"}").scan(),
                    Error);
  }

  TEST_CASE("a line that is too long fails alone") {
    const Written written("{\"prompt\":\"a\"}\n{\"prompt\":\"" + std::string(line_bytes_max, 'x') +
                          "\"}\n{\"prompt\":\"b\"}\n");
    const InputFile input = written.scan();
    REQUIRE(input.lines().size() == 3);
    CHECK(input.read(input.lines()[1]).failure->code == "line_too_long");
    CHECK(input.read(input.lines()[2]).body["prompt"] == "b");
  }

  TEST_CASE("compressed files and folders are refused") {
    CHECK(contains(error_text([] { Written("\x1f\x8b\x08zzz").scan(); }), "gunzip"));
    const Written written("x");
    CHECK_THROWS_AS(InputFile::open(written.folder.path().string(), "."), Error);
    CHECK_THROWS_AS(InputFile::open("/nonexistent", "."), Error);
  }

  TEST_CASE("a file that changes meanwhile is noticed") {
    const Written written("one\ntwo\n");
    const InputFile input = written.scan();
    std::ofstream(written.folder.path() / "in", std::ios::app) << "three\n";
    CHECK_THROWS_AS(input.read(input.lines()[0]), Error);
  }
}
