#include <algorithm>
#include <random>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/sessions/conversation.h"

namespace conversation_test {

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

std::string text(const Conversation& conversation) {
  return to_text(conversation.messages(conversation.here(), "x"));
}

}  // namespace

TEST_SUITE("app/chat/conversation") {
  TEST_CASE("messages are what the template expects, with one own turn per answer") {
    Conversation conversation;
    conversation.set_system("be brief");
    conversation.add(exchange("q1", "a1"));
    CHECK(to_text(conversation.messages(1, "q2")) ==
          R"([{"role":"system","content":"be brief"},{"role":"user","content":"q1"},)"
          R"({"role":"assistant","content":"a1"},{"role":"user","content":"q2"}])");
    REQUIRE(conversation.own_turns(1).size() == 1);
    CHECK(conversation.own_turns(1)[0].text == "a1");
    CHECK(conversation.own_turns(0).empty());
    conversation.set_system("");
    conversation.clear();
    CHECK(text(conversation) == R"([{"role":"user","content":"x"}])");
  }

  TEST_CASE("an answer without ids of its own is still shown") {
    Conversation conversation;
    conversation.add({.message = "q", .answer = {}, .answer_text = "cut at a stop string"});
    CHECK(conversation.messages(1, "r")[1]["content"] == "cut at a stop string");
    CHECK(conversation.own_turns(1)[0].tokens.empty());
  }

  TEST_CASE("the paths to the ends pass every turn") {
    CHECK(Conversation().ends().empty());
    CHECK(three().ends() == std::vector<std::int32_t>{3});
    std::mt19937 random(4);
    Conversation conversation;
    for (int i = 0; i < 60; ++i) {
      conversation.go_to(static_cast<std::int32_t>(random() % (i + 1U)));
      conversation.add(exchange("q", "a"));
      std::set<std::int32_t> passed;
      for (const std::int32_t end : conversation.ends()) {
        CHECK(passed.count(end) == 0);
        for (const std::int32_t turn : conversation.path(end)) passed.insert(turn);
      }
      CHECK(passed.size() == static_cast<std::size_t>(conversation.turns()));
    }
  }

  TEST_CASE("going back takes nothing away") {
    Conversation conversation = three();
    CHECK(conversation.path(3) == std::vector<std::int32_t>{1, 2, 3});
    for (const std::int32_t count : {0, 1, 2, 3, 9}) {
      CHECK(conversation.before(count) == std::max(3 - count, 0));
    }
    conversation.go_to(1);
    CHECK(conversation.add(exchange("q4", "a4")) == 4);
    CHECK(conversation.path(4) == std::vector<std::int32_t>{1, 4});
    conversation.go_to(3);
    CHECK(text(conversation) == text(three()));
  }

  TEST_CASE("branches grow apart and keep their ends") {
    Conversation conversation = three();
    REQUIRE(conversation.fork("other"));
    CHECK_FALSE(conversation.fork("main"));
    CHECK(conversation.here() == 3);
    conversation.add(exchange("q4", "a4"));
    CHECK(conversation.switch_to("main"));
    CHECK(conversation.here() == 3);
    CHECK_FALSE(conversation.switch_to("nowhere"));
    CHECK(conversation.branch() == "main");
    CHECK(conversation.switch_to("other"));
    CHECK(conversation.here() == 4);
    conversation.clear();
    CHECK(conversation.here() == 0);
    CHECK(conversation.branches().size() == 1);
  }

  TEST_CASE("random walks: every turn keeps its path") {
    std::mt19937 random(7);
    Conversation conversation;
    std::vector<std::string> said = {""};
    for (int i = 1; i <= 300; ++i) {
      conversation.go_to(static_cast<std::int32_t>(random() % said.size()));
      const std::string name = std::to_string(i);
      said.push_back(said[static_cast<std::size_t>(conversation.here())] + "/" + name);
      CHECK(conversation.add(exchange(name, name)) == i);
      if (i % 10 == 0) CHECK(conversation.fork("b" + name));
    }
    for (std::size_t turn = 0; turn < said.size(); ++turn) {
      std::string path;
      for (const std::int32_t number : conversation.path(static_cast<std::int32_t>(turn))) {
        path += "/" + conversation.turn(number).exchange.message;
      }
      CHECK(path == said[turn]);
    }
  }
}

}  // namespace conversation_test
