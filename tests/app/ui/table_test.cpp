#include "app/ui/table.h"

#include <doctest/doctest.h>

#include "core/base/error.h"

namespace table_test {

using namespace hyb::app;

TEST_SUITE("app/ui/table") {
  TEST_CASE("Markdown") {
    const Table table{{{"model"}, {"t/s", Align::right}}, {{"demo", "12.5"}, {"漢字|", "3"}}};
    CHECK(markdown_text(table) ==
          "| model  |  t/s |\n"
          "| ------ | ---: |\n"
          "| demo   | 12.5 |\n"
          "| 漢字\\| |    3 |\n");
  }

  TEST_CASE("plain, with and without titles") {
    const Table table{{{"a"}, {"b", Align::right}, {"c"}}, {{"xxx", "1"}, {"y", "22", "z"}}};
    CHECK(plain_text(table) ==
          "a     b  c\n"
          "xxx   1\n"
          "y    22  z\n");
    CHECK(plain_text({{{""}, {""}}, {{"k", "v"}}}) == "k  v\n");
  }

  TEST_CASE("cells stay one harmless line, rows no longer than the titles") {
    CHECK(plain_text({{{""}}, {{"a\nb\x1b[1m"}}}) == "a b\uFFFD[1m\n");
    CHECK_THROWS_AS(plain_text({{{"a"}}, {{"1", "2"}}}), hyb::Error);
  }
}

}  // namespace table_test
