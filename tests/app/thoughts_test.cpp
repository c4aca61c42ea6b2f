#include "app/thoughts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace hyb;
using namespace hyb::app;

namespace {

const AnswerStart raw = {};
const AnswerStart chat = {.may_think = true};
const AnswerStart begun = {.may_think = true, .opening = "<think>\n"};

/// Thoughts and the rest, each as one text.
std::pair<std::string, std::string> scanned(const AnswerStart& start,
                                            const std::vector<std::string>& chunks) {
  ThoughtScanner scanner(start);
  std::pair<std::string, std::string> told;
  const auto add = [&](const std::vector<ThoughtScanner::Piece>& pieces) {
    for (const auto& [text, is_thought] : pieces) {
      CHECK((!is_thought || told.second.empty()));  // the thought comes first
      (is_thought ? told.first : told.second) += text;
    }
  };
  for (const std::string& chunk : chunks) add(scanner.push(chunk));
  add(scanner.finish());
  return told;
}

std::string shown(const SplitAnswer& split) {
  return split.reasoning.value_or("(none)") + "|" + split.content;
}

}  // namespace

TEST_SUITE("app/thoughts") {
  TEST_CASE("answers that begin in thought, that begin one, and that have none") {
    const auto text = [](const AnswerStart& start, const char* answer) {
      return shown(split_answer(answer, start));
    };
    CHECK(text(begun, "two\n</think>\n\nFour. ") == "two|Four. ");
    CHECK(text(begun, "</think>Four.") == "|Four.");
    CHECK(text(begun, "two and tw") == "two and tw|");
    CHECK(text(begun, "") == "|");
    CHECK(text(begun, "<think>\ntwo\n</think>\nFour.") == "two|Four.");
    CHECK(text(begun, "two </thin </think> a </think> b") == "two </thin|a </think> b");
    CHECK(text(chat, "<think>\ntwo\n</think>\n\nFour.") == "two|Four.");
    CHECK(text(chat, "\n <think>two") == "two|");
    CHECK(text(chat, "<think></think>Four.") == "|Four.");
    CHECK(text(chat, " Four.") == "(none)| Four.");
    CHECK(text(chat, "Four. <think>two</think>") == "(none)|Four. <think>two</think>");
    CHECK(text(chat, "</think>Four.") == "(none)|</think>Four.");
    CHECK(text(chat, "<thin") == "(none)|<thin");
    CHECK(text(chat, "<thinks>") == "(none)|<thinks>");
    CHECK(text(chat, "") == "(none)|");
    CHECK(text(raw, "<think>two</think>Four.") == "(none)|<think>two</think>Four.");
  }

  TEST_CASE("nothing is lost, and chunks make no difference") {
    std::mt19937 random(7);
    const std::vector<std::string> words = {"<think>", "</think>", "<", "</",    "think>",
                                            " ",       "\n",       "a", "</thi", "nk>"};
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (std::size_t i = random() % 8; i > 0; --i) text += words[random() % words.size()];
      for (const AnswerStart& start : {raw, chat, begun}) {
        const auto whole = scanned(start, {text});
        CAPTURE(text);
        CHECK(whole.first + whole.second == text);
        std::vector<std::string> chunks;
        for (std::size_t at = 0; at < text.size();) {
          const std::size_t length = 1 + random() % 4;
          chunks.push_back(text.substr(at, length));
          at += length;
        }
        CHECK(scanned(start, chunks) == whole);
      }
    }
  }

  TEST_CASE("a thought is given out as it comes; only its begin is waited for") {
    ThoughtScanner scanner(chat);
    CHECK(scanner.push(" <thi").empty());
    REQUIRE(scanner.push("nk>a").size() == 1);
    const auto pieces = scanner.push("b</");
    REQUIRE(pieces.size() == 1);
    CHECK(pieces[0].text == "b</");
    CHECK(pieces[0].is_thought);
    const auto end = scanner.push("think>c");
    REQUIRE(end.size() == 2);
    CHECK(end[0].text == "think>");
    CHECK(end[1].text == "c");
    CHECK_FALSE(end[1].is_thought);
  }

  TEST_CASE("a past answer as a template takes it") {
    const std::string text = "two\n</think>\n\nFour.";
    CHECK(to_text(assistant_message(text, begun, true)) ==
          R"({"role":"assistant","content":"Four.","reasoning_content":"two"})");
    CHECK(assistant_message(text, begun, false)["content"] == "<think>\n" + text);
    CHECK(assistant_message("cut o", begun, true)["content"] == "");
    for (const bool takes_reasoning : {true, false}) {
      CHECK(to_text(assistant_message("Four.", chat, takes_reasoning)) ==
            R"({"role":"assistant","content":"Four."})");
    }
  }
}
