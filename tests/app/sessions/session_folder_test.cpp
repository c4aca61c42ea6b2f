#include <random>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/sessions/session_folder.h"
#include "tests/app/sessions/conversations.h"
#include "tests/support/error_text.h"

namespace session_folder_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/sessions/session_record") {
  TEST_CASE("random conversations come back as they were") {
    std::mt19937 random(3);
    for (int round = 0; round < 30; ++round) {
      const SessionRecord record{.model = "org/\"name\"",
                                 .saved_s = 1'700'000'000 + round,
                                 .conversation = random_conversation(random, round)};
      const SessionRecord again = parse_record({record_text(record)}, "s");
      CHECK(again.model == record.model);
      CHECK(again.saved_s == record.saved_s);
      CHECK(record_text(again) == record_text(record));
      const Conversation& conversation = again.conversation;
      CHECK(conversation.here() == record.conversation.here());
      const std::int32_t here = conversation.here();
      CHECK(conversation.messages(here, "x") == record.conversation.messages(here, "x"));
      for (std::int32_t turn = 1; turn <= conversation.turns(); ++turn) {
        CHECK(conversation.turn(turn).exchange.answer.tokens ==
              record.conversation.turn(turn).exchange.answer.tokens);
        CHECK(conversation.turn(turn).exchange.lead ==
              record.conversation.turn(turn).exchange.lead);
      }
    }
  }

  TEST_CASE("a turn's thinking option is restored, and absent from chats without one") {
    Conversation conversation;
    conversation.add({.message = "q", .answer = {}, .answer_text = "a"});
    const auto text = [&] {
      return record_text({.model = "m", .saved_s = 5, .conversation = conversation});
    };
    CHECK_FALSE(contains(text(), "opening"));
    CHECK_FALSE(contains(text(), "think"));
    conversation.add(
        {.message = "q", .answer = {}, .answer_text = "a", .opening = "<think>\n", .think = false});
    const Conversation again = parse_record({text()}, "s").conversation;
    CHECK(again.turn(1).exchange.opening.empty());
    CHECK_FALSE(again.turn(1).exchange.think.has_value());
    CHECK(again.turn(2).exchange.opening == "<think>\n");
    CHECK(again.turn(2).exchange.think == Think(false));
    Json bad = parse_json(text(), "s");
    bad["turns"][1]["think"] = "no";
    CHECK(contains(model_error([&] { parse_record({to_text(bad)}, "place"); }), "place: 'think'"));
    bad["turns"][1]["think"] = true;
    bad["turns"][1]["opening"] = 3;
    CHECK(
        contains(model_error([&] { parse_record({to_text(bad)}, "place"); }), "place: 'opening'"));
  }

  TEST_CASE("what breaks the form is refused, with its position") {
    std::mt19937 random(4);
    const std::string good =
        record_text({.model = "m", .saved_s = 5, .conversation = random_conversation(random, 3)});
    const Json json = parse_json(good, "s");
    for (const auto& [key, value] : json.items()) {
      CAPTURE(key);
      Json bad = json;
      bad.erase(key);
      CHECK(contains(model_error([&] { parse_record({to_text(bad)}, "place"); }), "place: "));
      bad[key] = Json::array({1.5});
      CHECK(contains(model_error([&] { parse_record({to_text(bad)}, "place"); }), "place: "));
    }
    for (const auto& [key, value] : json["turns"][0].items()) {
      CAPTURE(key);
      Json bad = json;
      bad["turns"][0].erase(key);
      CHECK(contains(model_error([&] { parse_record({to_text(bad)}, "place"); }), "place: "));
      bad["turns"][0][key] = Json::object();
      CHECK(contains(model_error([&] { parse_record({to_text(bad)}, "place"); }), "place: "));
    }
    const auto refuses = [&](auto change) {
      Json bad = json;
      change(bad);
      CHECK_FALSE(model_error([&] { parse_record({to_text(bad)}, "s"); }).empty());
    };
    refuses([](Json& bad) { bad["turns"][0]["behind"] = 1; });
    refuses([](Json& bad) { bad["turns"][2]["behind"] = -1; });
    refuses([](Json& bad) { bad["turns"][0]["answer_ids"] = {-1}; });
    refuses([](Json& bad) { bad["turns"][0]["answer_ids"] = {3'000'000'000}; });
    refuses([](Json& bad) { bad["branches"]["main"] = 4; });
    refuses([](Json& bad) { bad["branch"] = "other"; });
    refuses([](Json& bad) { bad["chat"] = 2; });
    for (const char* text : {"", "[]", "7", "{", "{\"chat\":1}"}) {
      CHECK_FALSE(model_error([&] { parse_record({text}, "s"); }).empty());
    }
  }
}

}  // namespace session_folder_test
