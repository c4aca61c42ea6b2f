#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "app/ui/line_editor.h"
#include "app/ui/text.h"

namespace line_editor_test {

using namespace hyb::app;

namespace {

View view_of(const std::string& text, std::size_t cursor, int columns, int rows_max = 100) {
  return lay_out(text, cursor,
                 {.prompt = "> ", .continuation = ". ", .columns = columns, .rows_max = rows_max});
}

using Rows = std::vector<std::string>;

}  // namespace

TEST_SUITE("app/ui/line_view") {
  TEST_CASE("short text follows the prompt") {
    const View view = view_of("abc", 1, 80);
    CHECK(view.rows == Rows{"> abc"});
    CHECK(view.cursor_row == 0);
    CHECK(view.cursor_column == 3);
  }

  TEST_CASE("lines and long lines") {
    const View view = view_of("abcdefgh\nx", 8, 6);
    CHECK(view.rows == Rows{"> abcd", "efgh", ". x"});
    CHECK(view.cursor_row == 1);
    CHECK(view.cursor_column == 4);
    const View full = view_of("abcd", 4, 6);
    CHECK(full.rows == Rows{"> abcd", ""});
    CHECK(full.cursor_row == 1);
    CHECK(full.cursor_column == 0);
  }

  TEST_CASE("a wide character is not cut in two") {
    CHECK(view_of("abc漢", 0, 6).rows == Rows{"> abc", "漢"});
  }

  TEST_CASE("control characters are shown, not sent") {
    CHECK(view_of("a\x1b[1m\x7f\t|\u009b", 0, 80).rows == Rows{"> a^[[1m^?    |\uFFFD"});
  }

  TEST_CASE("what does not fit scrolls with the cursor") {
    std::string text;
    for (int i = 0; i < 50; ++i) text += "line " + std::to_string(i) + '\n';
    const View end = view_of(text, text.size(), 40, 5);
    CHECK(end.rows == Rows{"...", ". line 47", ". line 48", ". line 49", ". "});
    CHECK(end.cursor_row == 4);
    const View begin = view_of(text, 0, 40, 5);
    CHECK(begin.rows.front() == "> line 0");
    CHECK(begin.rows.back() == "...");
    const View one = view_of(text, 100, 40, 1);
    CHECK(one.rows.size() == 1);
  }

  TEST_CASE("every row fits and the cursor is on one, in any window") {
    const std::string pieces[] = {"word ",   "\n", "漢字",     "👩‍👧",
                                  "e\u0301", "\t", "\x1b[31m", "🇩🇪"};
    std::mt19937 random(17);
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (std::size_t i = random() % 60; i > 0; --i) text += pieces[random() % std::size(pieces)];
      std::size_t cursor = 0;
      for (std::size_t i = random() % 60; i > 0 && cursor < text.size(); --i) {
        cursor = next_grapheme(text, cursor);
      }
      const int columns_max = 4 + static_cast<int>(random() % 40);
      const int rows_max = 1 + static_cast<int>(random() % 20);
      const View view = view_of(text, cursor, columns_max, rows_max);
      REQUIRE(!view.rows.empty());
      REQUIRE(static_cast<int>(view.rows.size()) <= rows_max);
      REQUIRE(view.cursor_row >= 0);
      REQUIRE(view.cursor_row < static_cast<int>(view.rows.size()));
      REQUIRE(view.cursor_column >= 0);
      REQUIRE(view.cursor_column <= columns_max);
      for (const std::string& row : view.rows) {
        REQUIRE(columns(row) <= columns_max);
        REQUIRE(sanitized(row) == row);
      }
    }
  }

  TEST_CASE("a window without room is no danger") {
    for (int columns_max = -1; columns_max < 4; ++columns_max) {
      for (int rows_max = -1; rows_max < 3; ++rows_max) {
        CHECK_FALSE(view_of("a漢\nb", 2 + 2, columns_max, rows_max).rows.empty());
      }
    }
  }

  TEST_CASE("a text of 10 MB costs no more than its window") {
    const std::string text(10'000'000, 'x');
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) {
      CHECK(view_of(text, text.size() / 2, 80, 24).rows.size() == 24);
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  }
}

}  // namespace line_editor_test
