#include "app/chat/checkpoints.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using testing::contains;

namespace {

Conversation three() {
  Conversation conversation;
  for (const char* message : {"one", "two", "three"}) {
    conversation.add({.message = message, .answer = {}, .answer_text = "a", .tokens = 70});
  }
  return conversation;
}

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  FAIL("accepted");
  return "";
}

}  // namespace

TEST_SUITE("app/chat/checkpoints") {
  TEST_CASE("undo says what it took and how it comes back") {
    Conversation conversation = three();
    const std::string said = undo(conversation, 2);
    CHECK(contains(said, "took back 2 of 3 messages, from: two"));
    CHECK(contains(said, "/goto 3"));
    CHECK(conversation.here() == 1);
    CHECK(contains(undo(conversation, 9), "took back 1 of 1"));
    CHECK(contains(refusal([&] { undo(conversation, 1); }), "nothing"));
  }

  TEST_CASE("goto finds branches and turns, and says so when there are none") {
    Conversation conversation = three();
    CHECK(contains(fork(conversation, ""), "branch fork-1"));
    CHECK(contains(fork(conversation, "b"), "/goto fork-1"));
    CHECK(contains(go_to(conversation, "0"), "at the beginning"));
    CHECK(contains(go_to(conversation, "2"), "behind turn 2: two"));
    CHECK(contains(go_to(conversation, "main"), "branch main, behind turn 3: three"));
    CHECK(contains(go_to(conversation, "b"), "behind turn 2"));
    for (const char* bad : {"", "4", "-1", "nowhere", "3x", "99999999999"}) {
      CAPTURE(bad);
      CHECK(contains(refusal([&] { go_to(conversation, bad); }), "/goto"));
      CHECK(conversation.here() == 2);
    }
  }

  TEST_CASE("branches have names that goto can tell from turns") {
    Conversation conversation = three();
    for (const char* bad :
         {"7", "two words", "main", "a-name-that-is-far-too-long-to-be-typed-in-again-by-anyone"}) {
      CAPTURE(bad);
      CHECK(contains(refusal([&] { fork(conversation, bad); }), "/fork"));
    }
    CHECK(conversation.branches().size() == 1);
  }

  TEST_CASE("the table names every turn, its branches and what is kept") {
    Conversation conversation = three();
    conversation.go_to(1);
    fork(conversation, "side");
    conversation.add({.message = "four\nlines \x1b[31m", .answer = {}, .answer_text = "a"});
    const std::string text =
        checkpoints_text(conversation, [](std::int32_t turn) { return 1000 + turn; });
    for (const char* part : {"one", "two", "three", "four lines", "*side", "1003", "70", "kept"}) {
      CAPTURE(part);
      CHECK(contains(text, part));
    }
    CHECK_FALSE(contains(text, "\x1b"));
    CHECK_FALSE(contains(checkpoints_text(conversation, {}), "kept"));
    CHECK(contains(checkpoints_text(Conversation(), {}), "nothing"));
  }
}
