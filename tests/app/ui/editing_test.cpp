#include <sys/stat.h>

#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "app/ui/editing.h"
#include "core/text/unicode.h"
#include "tests/support/files.h"

namespace editing_test {

using namespace hyb::app;
using Kind = Key::Kind;

namespace {

struct Fixture {
  History history;
  std::vector<std::string> words = {"/clear", "/regen", "/set", "/stats", "/system"};
  Completer completer = [this](std::string_view typed) {
    std::vector<std::string> choices;
    for (const std::string& word : words) {
      if (word.starts_with(typed)) choices.push_back(word);
    }
    return choices;
  };
  Editing editing{history, completer};

  Fixture() = default;
  explicit Fixture(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) history.add(entry);
    editing = Editing(history, completer);
  }

  Outcome type(const std::string& text) { return editing.apply({Kind::text, text}); }
  Outcome press(Kind kind) { return editing.apply({kind}); }
  const std::string& text() const { return editing.buffer().text(); }
};

}  // namespace

TEST_SUITE("app/ui/editing") {
  TEST_CASE("enter gives the entry") {
    Fixture fixture;
    fixture.type("hello");
    CHECK(fixture.press(Kind::enter) == Outcome::entered);
    CHECK(fixture.editing.entry().text == "hello");
  }

  TEST_CASE("several lines: backslash, line break key, marks") {
    Fixture fixture;
    fixture.type("one\\");
    CHECK(fixture.press(Kind::enter) == Outcome::edited);
    fixture.type("two");
    fixture.press(Kind::line_break);
    fixture.type("three");
    CHECK(fixture.press(Kind::enter) == Outcome::entered);
    CHECK(fixture.editing.entry().text == "one\ntwo\nthree");

    Fixture marked;
    marked.type("\"\"\"a");
    CHECK(marked.press(Kind::enter) == Outcome::edited);
    marked.type("/b\"\"\"");
    CHECK(marked.press(Kind::enter) == Outcome::entered);
    CHECK(marked.editing.entry().text == "a\n/b");
    CHECK(marked.editing.entry().is_literal);
  }

  TEST_CASE("a paste of many lines is text and enters nothing") {
    Fixture fixture;
    CHECK(fixture.editing.apply({Kind::paste, "a\nb\nc\n"}) == Outcome::edited);
    CHECK(fixture.text() == "a\nb\nc\n");
  }

  TEST_CASE("up and down walk through history and back to what was begun") {
    Fixture fixture({"one", "two\nlines"});
    fixture.type("new");
    fixture.press(Kind::up);
    CHECK(fixture.text() == "two\nlines");
    fixture.press(Kind::up);  // from its second line to its first
    CHECK(fixture.text() == "two\nlines");
    fixture.press(Kind::up);
    CHECK(fixture.text() == "one");
    fixture.press(Kind::up);
    CHECK(fixture.text() == "one");
    fixture.type("!");
    fixture.press(Kind::history_forward);
    fixture.press(Kind::history_forward);
    CHECK(fixture.text() == "new");
    fixture.press(Kind::history_forward);
    CHECK(fixture.text() == "new");
    fixture.press(Kind::history_back);
    fixture.press(Kind::history_back);
    CHECK(fixture.text() == "one!");
    CHECK(fixture.history.entries().front() == "one");
  }

  TEST_CASE("Ctrl-D erases, and leaves from an empty text") {
    Fixture fixture;
    fixture.type("ab");
    fixture.press(Kind::home);
    CHECK(fixture.press(Kind::end_of_input) == Outcome::edited);
    CHECK(fixture.text() == "b");
    fixture.press(Kind::end_of_input);
    CHECK(fixture.press(Kind::end_of_input) == Outcome::end_of_input);
  }

  TEST_CASE("Tab completes what it can, then shows the choices") {
    Fixture fixture;
    fixture.type("/r");
    fixture.press(Kind::tab);
    CHECK(fixture.text() == "/regen ");
    Fixture more;
    more.type("/st");
    more.press(Kind::tab);
    CHECK(more.text() == "/stats ");
    Fixture many;
    many.type("/s");
    CHECK(many.press(Kind::tab) == Outcome::choices);
    CHECK(many.editing.choices() == std::vector<std::string>{"/set", "/stats", "/system"});
    Fixture none;
    none.type("x");
    CHECK(none.press(Kind::tab) == Outcome::edited);
    CHECK(none.text() == "x");
    Fixture folder;
    folder.words = {"/read texts/"};
    folder.type("/read t");
    folder.press(Kind::tab);
    CHECK(folder.text() == "/read texts/");  // no space: its entries follow
  }

  TEST_CASE("Ctrl-X Ctrl-E asks for another editor, whose text takes the place") {
    Fixture fixture;
    fixture.type("draft");
    CHECK(fixture.press(Kind::editor) == Outcome::editor);
    CHECK(fixture.text() == "draft");
    fixture.editing.replace("two\nlines");
    CHECK(fixture.text() == "two\nlines");
    CHECK(fixture.editing.buffer().cursor() == 9);
  }

  TEST_CASE("a search that finds nothing says so, and Ctrl-G brings the text back") {
    Fixture fixture({"red box", "blue box"});
    fixture.type("draft");
    fixture.press(Kind::search);
    fixture.type("red");
    CHECK(fixture.text() == "red box");
    CHECK_FALSE(fixture.editing.search_fails());
    fixture.type("zz");
    CHECK(fixture.editing.search_fails());
    fixture.press(Kind::abort);
    CHECK_FALSE(fixture.editing.is_searching());
    CHECK(fixture.text() == "draft");
    fixture.press(Kind::up);
    CHECK(fixture.text() == "blue box");
    fixture.press(Kind::abort);  // nothing outside of a search
    CHECK(fixture.text() == "blue box");
  }

  TEST_CASE("Ctrl-R finds the latest entry, again the one before") {
    Fixture fixture({"red box", "blue box", "green bag"});
    fixture.press(Kind::search);
    fixture.type("bo");
    CHECK(fixture.editing.is_searching());
    CHECK(fixture.text() == "blue box");
    fixture.press(Kind::search);
    CHECK(fixture.text() == "red box");
    fixture.press(Kind::search);
    CHECK(fixture.text() == "red box");
    CHECK(fixture.press(Kind::enter) == Outcome::entered);
    CHECK(fixture.editing.entry().text == "red box");
  }
}

TEST_SUITE("app/ui/entry") {
  TEST_CASE("a line is an entry unchanged") {
    CHECK(finish_entry("hello")->text == "hello");
    CHECK_FALSE(finish_entry("/help")->is_literal);
    CHECK(finish_entry("")->text.empty());
    CHECK(finish_entry("a \\\n b")->text == "a \\\n b");
  }

  TEST_CASE("a backslash at the end asks for another line") {
    CHECK_FALSE(finish_entry("one\\"));
    CHECK(continued("one\\") == "one\n");
    CHECK(finish_entry(continued("one\\") + "two")->text == "one\ntwo");
  }

  TEST_CASE("between marks a text may have several lines and is not a command") {
    CHECK_FALSE(finish_entry("\"\"\""));
    CHECK_FALSE(finish_entry("\"\"\"one"));
    CHECK_FALSE(finish_entry("\"\"\"one\\"));
    CHECK(continued("\"\"\"one\\") == "\"\"\"one\\\n");
    const auto entry = finish_entry("\"\"\"\n/help\n two\n\"\"\" ");
    REQUIRE(entry);
    CHECK(entry->text == "/help\n two");
    CHECK(entry->is_literal);
    CHECK(finish_entry("\"\"\"\"\"\"")->text.empty());
    CHECK(finish_entry("\"\"\"a\"\"\"")->text == "a");
    CHECK_FALSE(finish_entry("\"\"\"\""));
  }

  TEST_CASE("what is entered for a text gives the text back") {
    for (const char* text : {"", "one", "two\nlines", "ends in \\", "\"\"\"", "\"quoted\" \\",
                             "two\nlines \\", "\n\\"}) {
      CAPTURE(text);
      const auto entry = finish_entry(as_entry(text));
      if (as_entry(text) == text && !entry) continue;  // marks and a backslash: there is no way
      REQUIRE(entry);
      CHECK(entry->text == text);
    }
    CHECK(as_entry("ends in \\") != "ends in \\");
  }
}

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

using namespace hyb;

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

}  // namespace editing_test
