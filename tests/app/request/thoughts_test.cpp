#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "app/machine/environment.h"
#include "app/request/messages.h"
#include "app/request/model_texts.h"
#include "app/request/prompt.h"
#include "app/request/template_probe.h"
#include "app/request/thoughts.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/text/unicode.h"
#include "tests/app/chat/chat_texts.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/tokenizer_text.h"

namespace thoughts_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

const AnswerStart chat = {.may_think = true};
const AnswerStart begun = {.may_think = true, .opening = "<think>\n"};
const AnswerStart harmony = {.may_think = true,
                             .markers = {.begin = "<|channel|>analysis",
                                         .end = "<|end|>",
                                         .has_headers = true,
                                         .is_in_content = false}};

/// A piece of an answer, known for what it is.
struct Said {
  enum Kind { header, thought, answer, call } kind;
  std::string text;
};

/// An answer of gpt-oss, its headers in turn in all forms that the format allows.
std::vector<Said> harmony_answer(std::size_t number) {
  const auto turn = [&](std::initializer_list<const char*> forms, std::size_t every) {
    return std::string(forms.begin()[number / every % forms.size()]);
  };
  const std::string mark = std::to_string(number);
  const std::string next = "<|end|><|start|>assistant";
  std::vector<Said> said;
  std::string header;  // of the next message, without its channel
  const auto thought = [&](const std::string& text) {
    said.push_back(
        {Said::header, header + "<|channel|>analysis" + turn({"", " "}, 2) + "<|message|>"});
    said.push_back({Said::thought, text + mark});
    header = next;
  };
  if (number % 5 != 4) thought("I think, <b>assistant</b> to=x. ");
  if (number % 3 == 1) thought("Once more: < <| final. ");
  if (number % 4 == 3) {
    said.push_back({Said::header, header + "<|channel|>commentary<|message|>"});
    said.push_back({Said::answer, "First I look. " + mark});
    header = next;
  }
  if (number % 4 > 1) {
    const std::string type = turn({" <|constrain|>json", "<|constrain|>json", " json", ""}, 4);
    const std::string to = " to=functions.get_weather", channel = "<|channel|>commentary";
    const bool is_first = number / 16 % 2 == 0;
    said.push_back(
        {Said::header, header + (is_first ? to + channel : channel + to) + type + "<|message|>"});
    said.push_back({Said::call, "{\"city\": \"Oslo " + mark + "\"}"});
    return said;
  }
  said.push_back(
      {Said::header, header + "<|channel|>final" +
                         turn({"", " json", " <|constrain|>json", "<|constrain|> json"}, 4) +
                         "<|message|>"});
  said.push_back({Said::answer, "{\"answer\": \"to=all, json\"} " + mark});
  return said;
}

/// Where a token may end: not within a control token.
bool is_between_tokens(const std::string& text, std::size_t at) {
  const std::size_t open = text.rfind("<|", at == 0 ? 0 : at - 1);
  if (open == std::string::npos || open >= at) return true;
  const std::size_t close = text.find("|>", open + 2);
  const bool is_control =
      close != std::string::npos && close - open < 14 && text.find(' ', open) > close;
  return !is_control || close + 2 <= at;
}

/// Up to this length, by what is known of its pieces.
struct Known {
  std::string raw;
  std::vector<std::string> thoughts, answers;
  std::optional<std::string> arguments;
};

Known known_part(const std::vector<Said>& said, std::size_t length) {
  Known known;
  for (const Said& piece : said) {
    const std::string text = piece.text.substr(0, length - known.raw.size());
    known.raw += text;
    if (piece.kind == Said::thought) known.thoughts.push_back(text);
    if (piece.kind == Said::answer && !text.empty()) known.answers.push_back(text);
    if (piece.kind == Said::call) known.arguments = text;
    if (text.size() < piece.text.size()) break;
  }
  return known;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "\n\n") + text;
  return all;
}

}  // namespace

TEST_SUITE("app/thoughts") {
  TEST_CASE("32 conversations with gpt-oss, its answers cut at six places, and their next turns") {
    const Json conversations =
        parse_json(content(std::filesystem::path(HYB_TESTS_DIR) / "core/text/conversations.json"),
                   "conversations");
    const ChatTemplate chat_template = family_template("harmony");
    REQUIRE(conversations.size() == 32);
    int turns = 0, refused = 0;
    for (std::size_t i = 0; i < conversations.size(); ++i) {
      Json variables = conversations[i];
      const Json messages = variables["messages"];
      variables.erase("messages");
      variables["add_generation_prompt"] = true;
      try {
        chat_template.render(messages, variables);
      } catch (const Error&) {
        ++refused;  // the conversation itself: pictures, or thoughts beside content and a call
        continue;
      }
      const std::vector<Said> said = harmony_answer(i);
      const std::size_t length = known_part(said, 10000).raw.size();
      for (std::size_t cut = 0; cut <= 6; ++cut) {
        std::size_t at = length - cut * length / 7;
        while (!is_between_tokens(known_part(said, length).raw, at)) --at;
        const Known known = known_part(said, at);
        CAPTURE(known.raw);
        const SplitAnswer split = split_answer(known.raw, harmony);
        CHECK(split.reasoning.value_or("") == std::string(trim(joined(known.thoughts))));
        CHECK(split.content == joined(known.answers));
        CHECK(split.call.empty() == !known.arguments.has_value());
        CHECK(split.call.ends_with("<|message|>" + known.arguments.value_or("")) ==
              known.arguments.has_value());

        Json next = messages;
        next.push_back(assistant_message(known.raw, harmony, true));
        const bool is_called = known.arguments.has_value();
        next.push_back({{"role", is_called ? "tool" : "user"}, {"content", "5 C"}});
        const std::string text = chat_template.render(next, variables).text();
        const std::string thought =
            known.answers.empty() ? joined(known.thoughts) : joined(known.answers);
        std::string end = "<|start|>assistant<|channel|>final<|message|>" + joined(known.answers) +
                          "<|end|><|start|>user<|message|>5 C<|end|><|start|>assistant";
        if (is_called) {
          end = thought.empty() ? ""
                                : "<|start|>assistant<|channel|>analysis<|message|>" +
                                      std::string(trim(thought)) + "<|end|>";
          const Json arguments = Json::parse(*known.arguments, nullptr, false);
          end +=
              "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>" +
              (arguments.is_object()      ? *known.arguments
               : known.arguments->empty() ? "{}"
                                          : Json(*known.arguments).dump()) +
              "<|call|><|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"
              "\"5 C\"<|end|><|start|>assistant";
        }
        CHECK(text.substr(text.size() - std::min(text.size(), end.size())) == end);
        ++turns;
      }
    }
    CHECK(refused == 4);
    CHECK(turns == 7 * 28);
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

}  // namespace thoughts_test
