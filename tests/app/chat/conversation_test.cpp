#include "app/chat/conversation.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace hyb;
using namespace hyb::app;

namespace {

Exchange exchange(const std::string& message, const std::string& answer) {
  return {.message = message, .answer = {answer, {TokenId{1}}}, .answer_text = answer};
}

Conversation three() {
  Conversation conversation;
  for (const char* name : {"1", "2", "3"}) {
    conversation.add(exchange(std::string("q") + name, std::string("a") + name));
  }
  return conversation;
}

}  // namespace

TEST_SUITE("app/chat/conversation") {
  TEST_CASE("messages are what the template expects, with one own turn per answer") {
    Conversation conversation;
    conversation.set_system("be brief");
    conversation.add(exchange("q1", "a1"));
    CHECK(to_text(conversation.messages("q2")) ==
          R"([{"role":"system","content":"be brief"},{"role":"user","content":"q1"},)"
          R"({"role":"assistant","content":"a1"},{"role":"user","content":"q2"}])");
    REQUIRE(conversation.own_turns().size() == 1);
    CHECK(conversation.own_turns()[0].text == "a1");
    conversation.set_system("");
    conversation.clear();
    CHECK(to_text(conversation.messages("x")) == R"([{"role":"user","content":"x"}])");
  }

  TEST_CASE("an answer without ids of its own is still told") {
    Conversation conversation;
    conversation.add({.message = "q", .answer = {}, .answer_text = "cut at a stop string"});
    CHECK(conversation.messages("r")[1]["content"] == "cut at a stop string");
    CHECK(conversation.own_turns()[0].tokens.empty());
  }

  TEST_CASE("the last exchanges go and come back in order") {
    for (std::size_t count : {0U, 1U, 2U, 3U, 9U}) {
      Conversation conversation = three();
      auto taken = conversation.take_last(count);
      CHECK(taken.size() == std::min<std::size_t>(count, 3));
      CHECK(conversation.exchanges().size() + taken.size() == 3);
      conversation.put_back(std::move(taken));
      CHECK(conversation.messages("x") == three().messages("x"));
    }
  }
}
