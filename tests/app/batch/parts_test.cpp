#include "app/batch/parts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace parts_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// Prompts with one of `groups` long beginnings, in a random order.
struct Written {
  Written(int groups, int lines) {
    std::mt19937 random(5);
    std::string text;
    for (int i = 0; i < lines; ++i) {
      group.push_back(static_cast<int>(random() % static_cast<unsigned>(groups)));
      std::string start;
      while (start.size() < 1500) start += "This is group " + std::to_string(group.back()) + ". ";
      text += R"({"prompt":")" + start + "Question " + std::to_string(i) + "?\"}\n";
    }
    folder.write("in", text);
    input.emplace(InputFile::open((folder.path() / "in").string(), folder.path()));
    input->scan(LineFormat::jsonl);
  }

  TemporaryFolder folder;
  std::vector<int> group;  ///< of each line
  std::optional<InputFile> input;
};

}  // namespace

TEST_SUITE("app/batch/parts") {
  TEST_CASE("prompts that begin alike stay together, and parts are about as large as each other") {
    const Written written(40, 1000);
    for (const int count : {2, 3, 8}) {
      CAPTURE(count);
      const std::vector<std::int32_t> parts = split_lines(*written.input, count);
      std::map<int, std::set<std::int32_t>> parts_of_group;
      std::map<std::int32_t, int> sizes;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts_of_group[written.group[i]].insert(parts[i]);
        ++sizes[parts[i]];
      }
      for (const auto& [group, found] : parts_of_group) CHECK(found.size() == 1);
      CHECK(sizes.begin()->first == 1);
      CHECK(sizes.rbegin()->first == count);
      CHECK(static_cast<int>(sizes.size()) == count);
      for (const auto& [part, size] : sizes) {
        CHECK(size > 1000 / count / 2);
        CHECK(size < 1000 / count * 3 / 2);
      }
    }
  }

  TEST_CASE("a group that is larger than a part is cut") {
    const Written written(1, 90);
    const std::vector<std::int32_t> parts = split_lines(*written.input, 3);
    for (std::int32_t part = 1; part <= 3; ++part) CHECK(std::ranges::count(parts, part) == 30);
  }

  TEST_CASE("there may be more parts than lines") {
    const Written written(2, 3);
    const std::vector<std::int32_t> parts = split_lines(*written.input, 100);
    CHECK(parts.size() == 3);
    for (const std::int32_t part : parts) CHECK((part >= 1 && part <= 100));
  }

  TEST_CASE("what is no part is refused") {
    CHECK(Part::of("3/16").text() == "3/16");
    CHECK(Part::of("1/1").count == 1);
    for (const char* text : {"", "3", "0/4", "5/4", "-1/4", "1/0", "1/10000", "1/2/3", "a/b",
                             "1/ 2", "99999999999/99999999999"}) {
      CAPTURE(text);
      CHECK(contains(error_text([&] { Part::of(text); }), "give K/N, as 3/16"));
    }
  }
}

}  // namespace parts_test
