#include "app/ui/line_buffer.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "core/text/utf8.h"

using namespace hyb;
using namespace hyb::app;

namespace {

LineBuffer buffer_of(const std::string& before, const std::string& after = "") {
  LineBuffer buffer;
  buffer.insert(after);
  while (buffer.cursor() > 0) buffer.move_left();
  buffer.insert(before);
  return buffer;
}

std::string shown(const LineBuffer& buffer) {
  std::string text = buffer.text();
  return text.insert(buffer.cursor(), "|");
}

}  // namespace

TEST_SUITE("app/ui/line_buffer") {
  TEST_CASE("characters go in and out as a whole") {
    LineBuffer buffer = buffer_of("ae\u0301👩‍👧", "b");
    buffer.erase_left();
    CHECK(shown(buffer) == "ae\u0301|b");
    buffer.move_left();
    CHECK(shown(buffer) == "a|e\u0301b");
    buffer.erase_right();
    CHECK(shown(buffer) == "a|b");
    buffer.insert("\xff");
    CHECK(shown(buffer) == "a\uFFFD|b");
  }

  TEST_CASE("words") {
    LineBuffer buffer = buffer_of("one, two-three  ");
    buffer.move_word_left();
    CHECK(shown(buffer) == "one, two-|three  ");
    buffer.move_word_left();
    CHECK(shown(buffer) == "one, |two-three  ");
    buffer.move_word_right();
    CHECK(shown(buffer) == "one, two|-three  ");
    buffer.kill_word_right();
    CHECK(shown(buffer) == "one, two|  ");
    buffer.kill_word_left();
    CHECK(shown(buffer) == "one, |  ");
    buffer.yank();
    CHECK(shown(buffer) == "one, two|  ");
  }

  TEST_CASE("lines: home, end, kill and the way between them") {
    LineBuffer buffer = buffer_of("first\nsec", "ond\nx\nlonger");
    buffer.kill_to_end();
    CHECK(shown(buffer) == "first\nsec|\nx\nlonger");
    buffer.kill_to_end();
    CHECK(shown(buffer) == "first\nsec|x\nlonger");
    buffer.kill_to_begin();
    CHECK(shown(buffer) == "first\n|x\nlonger");
    buffer.yank();
    CHECK(shown(buffer) == "first\nsec|x\nlonger");
    buffer.move_home();
    buffer.move_home();
    CHECK(shown(buffer) == "|first\nsecx\nlonger");
    buffer.move_end();
    buffer.move_end();
    CHECK(shown(buffer) == "first\nsecx|\nlonger");
    CHECK(buffer.move_down());
    CHECK(shown(buffer) == "first\nsecx\nlong|er");
    CHECK_FALSE(buffer.move_down());
    CHECK(buffer.move_up());
    CHECK(buffer.move_up());
    CHECK(shown(buffer) == "firs|t\nsecx\nlonger");
    CHECK_FALSE(buffer.move_up());
  }

  TEST_CASE("up and down keep the column on the screen") {
    LineBuffer buffer = buffer_of("漢字漢字\nabc", "d");
    CHECK(buffer.move_up());
    CHECK(shown(buffer) == "漢|字漢字\nabcd");
  }

  TEST_CASE("whatever is done, text and cursor stay whole") {
    using Move = void (LineBuffer::*)();
    constexpr Move moves[] = {&LineBuffer::move_left,
                              &LineBuffer::move_right,
                              &LineBuffer::move_word_left,
                              &LineBuffer::move_word_right,
                              &LineBuffer::move_home,
                              &LineBuffer::move_end,
                              &LineBuffer::erase_left,
                              &LineBuffer::erase_right,
                              &LineBuffer::kill_to_end,
                              &LineBuffer::kill_to_begin,
                              &LineBuffer::kill_word_left,
                              &LineBuffer::kill_word_right,
                              &LineBuffer::yank};
    const std::string pieces[] = {"a b", "\n", "é漢", "👩‍👧", "\u0301", "🇩🇪", "\t", "\x1b"};
    std::mt19937 random(11);
    LineBuffer buffer;
    for (int round = 0; round < 20000; ++round) {
      const std::size_t which = random() % 24;
      if (which < std::size(moves)) {
        (buffer.*moves[which])();
      } else if (which == 20) {
        buffer.move_up();
      } else if (which == 21) {
        buffer.move_down();
      } else {
        buffer.insert(pieces[random() % std::size(pieces)]);
      }
      if (buffer.text().size() > 400) buffer.set("");
      REQUIRE(buffer.cursor() <= buffer.text().size());
      REQUIRE(is_well_formed(buffer.text().substr(0, buffer.cursor())));
      REQUIRE(is_well_formed(buffer.text().substr(buffer.cursor())));
    }
  }
}
