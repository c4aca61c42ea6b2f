#include "app/ui/editing.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace hyb::app;
using Kind = Key::Kind;

namespace {

struct Desk {
  History history;
  std::vector<std::string> words = {"/clear", "/regen", "/set", "/stats", "/system"};
  Editing editing{history, words};

  Desk() = default;
  explicit Desk(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) history.add(entry);
    editing = Editing(history, words);
  }

  Outcome type(const std::string& text) { return editing.apply({Kind::text, text}); }
  Outcome press(Kind kind) { return editing.apply({kind}); }
  const std::string& text() const { return editing.buffer().text(); }
};

}  // namespace

TEST_SUITE("app/ui/editing") {
  TEST_CASE("enter gives the entry") {
    Desk desk;
    desk.type("hello");
    CHECK(desk.press(Kind::enter) == Outcome::entered);
    CHECK(desk.editing.entry().text == "hello");
  }

  TEST_CASE("several lines: backslash, line break key, marks") {
    Desk desk;
    desk.type("one\\");
    CHECK(desk.press(Kind::enter) == Outcome::edited);
    desk.type("two");
    desk.press(Kind::line_break);
    desk.type("three");
    CHECK(desk.press(Kind::enter) == Outcome::entered);
    CHECK(desk.editing.entry().text == "one\ntwo\nthree");

    Desk marked;
    marked.type("\"\"\"a");
    CHECK(marked.press(Kind::enter) == Outcome::edited);
    marked.type("/b\"\"\"");
    CHECK(marked.press(Kind::enter) == Outcome::entered);
    CHECK(marked.editing.entry().text == "a\n/b");
    CHECK(marked.editing.entry().is_literal);
  }

  TEST_CASE("a paste of many lines is text and enters nothing") {
    Desk desk;
    CHECK(desk.editing.apply({Kind::paste, "a\nb\nc\n"}) == Outcome::edited);
    CHECK(desk.text() == "a\nb\nc\n");
  }

  TEST_CASE("up and down walk through history and back to what was begun") {
    Desk desk({"one", "two\nlines"});
    desk.type("new");
    desk.press(Kind::up);
    CHECK(desk.text() == "two\nlines");
    desk.press(Kind::up);  // from its second line to its first
    CHECK(desk.text() == "two\nlines");
    desk.press(Kind::up);
    CHECK(desk.text() == "one");
    desk.press(Kind::up);
    CHECK(desk.text() == "one");
    desk.type("!");
    desk.press(Kind::history_forward);
    desk.press(Kind::history_forward);
    CHECK(desk.text() == "new");
    desk.press(Kind::history_forward);
    CHECK(desk.text() == "new");
    desk.press(Kind::history_back);
    desk.press(Kind::history_back);
    CHECK(desk.text() == "one!");
    CHECK(desk.history.entries().front() == "one");
  }

  TEST_CASE("Ctrl-D erases, and leaves from an empty text") {
    Desk desk;
    desk.type("ab");
    desk.press(Kind::home);
    CHECK(desk.press(Kind::end_of_input) == Outcome::edited);
    CHECK(desk.text() == "b");
    desk.press(Kind::end_of_input);
    CHECK(desk.press(Kind::end_of_input) == Outcome::end_of_input);
  }

  TEST_CASE("Tab completes what it can, then shows the choices") {
    Desk desk;
    desk.type("/r");
    desk.press(Kind::tab);
    CHECK(desk.text() == "/regen ");
    Desk more;
    more.type("/st");
    more.press(Kind::tab);
    CHECK(more.text() == "/stats ");
    Desk many;
    many.type("/s");
    CHECK(many.press(Kind::tab) == Outcome::choices);
    CHECK(many.editing.choices() == std::vector<std::string>{"/set", "/stats", "/system"});
    Desk none;
    none.type("x");
    CHECK(none.press(Kind::tab) == Outcome::edited);
    CHECK(none.text() == "x");
  }

  TEST_CASE("Ctrl-R finds the latest entry, again the one before") {
    Desk desk({"red box", "blue box", "green bag"});
    desk.press(Kind::search);
    desk.type("bo");
    CHECK(desk.editing.is_searching());
    CHECK(desk.text() == "blue box");
    desk.press(Kind::search);
    CHECK(desk.text() == "red box");
    desk.press(Kind::search);
    CHECK(desk.text() == "red box");
    CHECK(desk.press(Kind::enter) == Outcome::entered);
    CHECK(desk.editing.entry().text == "red box");
  }
}
