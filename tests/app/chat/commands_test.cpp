#include "app/chat/commands.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using Kind = SlashCommand::Kind;

namespace {

std::string refusal(const std::string& text) {
  try {
    parse_slash_command(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("app/chat/commands") {
  TEST_CASE("one slash is for us, two are for the model") {
    CHECK(is_slash_command("/help"));
    CHECK(is_slash_command("/"));
    CHECK_FALSE(is_slash_command("//help"));
    CHECK_FALSE(is_slash_command(" /help"));
    CHECK_FALSE(is_slash_command(""));
  }

  TEST_CASE("names and aliases") {
    CHECK(parse_slash_command("/?").kind == Kind::help);
    CHECK(parse_slash_command("/new").kind == Kind::clear);
    for (const char* name : {"/exit", "/quit", "/bye"}) {
      CHECK(parse_slash_command(name).kind == Kind::exit);
    }
    for (const std::string& name : slash_names()) CHECK_NOTHROW(parse_slash_command(name));
  }

  TEST_CASE("arguments") {
    CHECK(parse_slash_command("/undo").count == 1);
    CHECK(parse_slash_command("/undo  3 ").count == 3);
    CHECK(parse_slash_command("/regen 2").count == 2);
    CHECK(parse_slash_command("/edit").count == 0);
    CHECK(parse_slash_command("/edit 2").count == 2);
    CHECK(parse_slash_command("/edit 2").argument.empty());
    CHECK(parse_slash_command("/edit 2  three\nfour ").argument == "three\nfour");
    CHECK(parse_slash_command("/goto side").argument == "side");
    CHECK(parse_slash_command("/set temperature 0.5 ").argument == "temperature 0.5");
    CHECK(parse_slash_command("/system two\nlines\n").argument == "two\nlines");
    for (const char* bad : {"/undo 0", "/undo -1", "/undo x", "/undo 1 2", "/undo 99999999999",
                            "/help me", "/clear all", "/edit all", "/edit 0", "/mem all"}) {
      CAPTURE(bad);
      CHECK_FALSE(refusal(bad).empty());
    }
  }

  TEST_CASE("an unknown command names the nearest, and the way to say it all the same") {
    CHECK(testing::contains(refusal("/stat"), "/stats"));
    CHECK(testing::contains(refusal("/halp"), "/help"));
    CHECK(testing::contains(refusal("/etc/passwd what is it"), "//"));
    CHECK(refusal("/" + std::string(1'000'000, 'x')).size() < 300);
  }

  TEST_CASE("the help lists every command") {
    for (const std::string& name : slash_names()) CHECK(testing::contains(slash_help(), name));
  }
}
