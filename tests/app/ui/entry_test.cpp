#include "app/ui/entry.h"

#include <doctest/doctest.h>

using namespace hyb::app;

TEST_SUITE("app/ui/entry") {
  TEST_CASE("a line is an entry as it stands") {
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

  TEST_CASE("between marks a text may have several lines and is no command") {
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
