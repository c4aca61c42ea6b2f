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

  TEST_CASE("columns by one text: a title after > is of numbers") {
    CHECK(markdown_text({columns_of("model|>t/s|"), {{"demo", "12.5", "x"}}}) ==
          "| model |  t/s |     |\n"
          "| ----- | ---: | --- |\n"
          "| demo  | 12.5 | x   |\n");
  }

  TEST_CASE("plain, with and without titles") {
    const Table table{{{"a"}, {"b", Align::right}, {"c"}}, {{"xxx", "1"}, {"y", "22", "z"}}};
    CHECK(plain_text(table) ==
          "a     b  c\n"
          "xxx   1\n"
          "y    22  z\n");
    CHECK(plain_text({{{""}, {""}}, {{"k", "v"}}}) == "k  v\n");
  }

  TEST_CASE("fitted to a width: what is the same goes first, what is too wide continues below") {
    Table table{{{"model"}, {"test"}, {"t/s", Align::right}, {"GB/s", Align::right}, {"status"}},
                {{"demo", "pp64", "12.5", "1.25", "ok"}, {"demo", "tg16", "3", "20.5", "ok"}}};
    CHECK(fitted_text(table, 80) == plain_text(table));
    CHECK(fitted_text(table, 20) ==
          "model demo,\n"
          "status ok\n"
          "\n"
          "test   t/s  GB/s\n"
          "pp64  12.5  1.25\n"
          "tg16     3  20.5\n");
    CHECK(fitted_text(table, 12) ==
          "model demo,\n"
          "status ok\n"
          "\n"
          "test   t/s\n"
          "pp64  12.5\n"
          "tg16     3\n"
          "\n"
          "test  GB/s\n"
          "pp64  1.25\n"
          "tg16  20.5\n");
    table.rows.pop_back();  // of a single row figures stay in their columns
    CHECK(fitted_text(table, 24) ==
          "model demo, test pp64,\n"
          "status ok\n"
          "\n"
          " t/s  GB/s\n"
          "12.5  1.25\n");
    CHECK(fitted_text({{{"a"}}, {{"wide"}, {"wide"}}}, 2) == "a wide\n\n");
  }

  TEST_CASE("cells stay one harmless line, rows no longer than the titles") {
    CHECK(plain_text({{{""}}, {{"a\nb\x1b[1m"}}}) == "a b\uFFFD[1m\n");
    CHECK_THROWS_AS(plain_text({{{"a"}}, {{"1", "2"}}}), hyb::Error);
  }
}

}  // namespace table_test
