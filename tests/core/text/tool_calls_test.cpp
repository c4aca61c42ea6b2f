#include "core/text/tool_calls.h"

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/text/answer_scanner.h"
#include "core/text/chat_template.h"
#include "tests/support/files.h"

namespace tool_calls_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const char* const tools_text = R"([{"type": "function", "function": {"name": "get_weather",
    "parameters": {"type": "object", "properties": {
      "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
      "flag": {"type": "boolean"}, "list": {"type": "array"}, "table": {"type": "object"},
      "maybe": {"type": ["string", "null"]}, "either": {"anyOf": [{"type": "integer"},
      {"type": "string"}]}, "choice": {"enum": ["a", 2]}, "odd": {},
      "zip": {"$ref": "#/$defs/zip"}, "ring": {"$ref": "#/$defs/ring"}},
      "$defs": {"zip": {"allOf": [{"type": "string"}]}, "ring": {"$ref": "#/$defs/ring"}}}}},
    {"type": "function", "function": {"name": "stop"}}])";

/// How the families' templates write a value.
std::string python(const Json& value) {
  if (value.is_string()) {
    std::string text = "'";
    for (const char c : value.get<std::string>()) {
      if (c == '\'' || c == '\\') text += '\\';
      text += c;
    }
    return text + "'";
  }
  if (value.is_boolean()) return value == true ? "True" : "False";
  return value.is_null() ? "None" : to_text(value);
}

std::string tagged(const Json& value) {
  return value.is_string()                       ? value.get<std::string>()
         : value.is_array() || value.is_object() ? to_text(value)
                                                 : python(value);
}

std::string gemma(const Json& value) {
  if (value.is_string()) return "<|\"|>" + value.get<std::string>() + "<|\"|>";
  if (!value.is_object() && !value.is_array()) return to_text(value);
  std::string text;
  for (const auto& [key, item] : value.items()) {
    text += (text.empty() ? "" : ",") + (value.is_object() ? key + ":" : "") + gemma(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

struct Written {
  const char* form;
  std::string (*write)(const std::string& name, const Json& arguments);
};

const Written writers[] = {
    {"json",
     [](const std::string& name, const Json& arguments) {
       return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + to_text(arguments) +
              "}\n</tool_call>";
     }},
    {"xml",
     [](const std::string& name, const Json& arguments) {
       std::string text = "<tool_call>\n<function=" + name + ">\n";
       for (const auto& [key, value] : arguments.items()) {
         text += "<parameter=" + key + ">\n" + tagged(value) + "\n</parameter>\n";
       }
       return text + "</function>\n</tool_call>";
     }},
    {"pairs",
     [](const std::string& name, const Json& arguments) {
       std::string text = "<tool_call>" + name;
       for (const auto& [key, value] : arguments.items()) {
         text += "\n<arg_key>" + key + "</arg_key>\n<arg_value>" +
                 (value.is_string() ? value.get<std::string>() : to_text(value)) + "</arg_value>";
       }
       return text + "\n</tool_call>";
     }},
    {"python",
     [](const std::string& name, const Json& arguments) {
       std::string text;
       for (const auto& [key, value] : arguments.items()) {
         text += (text.empty() ? "" : ", ") + key + "=" + python(value);
       }
       return "<|tool_call_start|>[" + name + "(" + text + ")]<|tool_call_end|>";
     }},
    {"gemma",
     [](const std::string& name, const Json& arguments) {
       return "<|tool_call>call:" + name + gemma(arguments) + "<tool_call|>";
     }},
    {"mistral",
     [](const std::string& name, const Json& arguments) {
       return "[TOOL_CALLS]" + name + "[ARGS]" + to_text(arguments);
     }},
    {"list",
     [](const std::string& name, const Json& arguments) {
       return "<TOOLCALL>[{\"name\": \"" + name + "\", \"arguments\": " + to_text(arguments) +
              "}]</TOOLCALL>";
     }},
    {"harmony",
     [](const std::string& name, const Json& arguments) {
       return "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>" +
              to_text(arguments);
     }},
};

AnswerStart start_of(const Written& form) {
  const CallForm* const found = call_form_in(form.write("lookup", {{"a", "b"}}), "lookup");
  REQUIRE(found != nullptr);
  AnswerStart start{.may_think = true, .calls = {.form = found, .tools = tools_text}};
  if (found->body == CallForm::Body::harmony) {
    start.markers = {.begin = "<|channel|>analysis", .end = "<|end|>", .has_headers = true};
  }
  return start;
}

/// Texts of all kinds, parts of markers among them; what no writer escapes is left out.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> words = {"Paris",
                                                 " ",
                                                 "\n",
                                                 "\"",
                                                 "'",
                                                 "\\",
                                                 "\\n",
                                                 "{",
                                                 "}",
                                                 "[1, 2]",
                                                 "(a=1)",
                                                 "\u00e9\u4e2d",
                                                 "5",
                                                 "<",
                                                 ">",
                                                 ",",
                                                 ":",
                                                 "True",
                                                 "null",
                                                 "</parameter>",
                                                 "</arg_value>",
                                                 "<tool_call>",
                                                 "</tool_call>",
                                                 "<|tool_call_end|>",
                                                 "<tool_call|>",
                                                 "\t",
                                                 "#",
                                                 "\U0001F600",
                                                 "=",
                                                 "to=",
                                                 ""};
  std::string text;
  for (std::size_t i = random() % 6; i > 0; --i) text += words[random() % words.size()] + "x";
  return text;
}

Json random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 2 ? 5 : 7)) {
    case 0:
      return random_text(random);
    case 1:
      return static_cast<std::int64_t>(random()) - (std::int64_t{1} << 31);
    case 2:
      return static_cast<double>(random() % 10000) / 16 + 0.03125;
    case 3:
      return random() % 2 == 0;
    case 4:
      return nullptr;
    case 5: {
      Json list = Json::array();
      for (std::size_t i = random() % 3; i > 0; --i)
        list.push_back(random_value(random, depth + 1));
      return list;
    }
    default: {
      Json table = Json::object();
      for (std::size_t i = random() % 3; i > 0; --i) {
        table["k" + std::to_string(i)] = random_value(random, depth + 1);
      }
      return table;
    }
  }
}

Json random_arguments(std::mt19937& random) {
  Json all = {{"text", random_text(random)},
              {"count", static_cast<int>(random() % 100) - 50},
              {"ratio", static_cast<double>(random() % 1000) / 8 + 0.0625},
              {"flag", random() % 2 == 0},
              {"list", Json::array({random_value(random, 1), random_value(random, 1)})},
              {"table", Json{{"a", random_value(random, 1)}, {"b", random_value(random, 2)}}},
              {"maybe", random() % 2 == 0 ? Json() : Json("5 or so")},
              {"either", random() % 2 == 0 ? Json(7) : Json("seven")},
              {"choice", random() % 2 == 0 ? Json(2) : Json("a")}};
  Json some = Json::object();
  for (const auto& [key, value] : all.items()) {
    if (random() % 3 == 0) some[key] = value;
  }
  return some;
}

using Pieces = std::vector<AnswerScanner::Piece>;

/// What comes of chunks, neighbours of one part joined.
Pieces scanned(const AnswerStart& start, std::initializer_list<std::string_view> chunks,
               bool is_by_bytes = false) {
  AnswerScanner scanner(start);
  Pieces all;
  const auto add = [&](Pieces pieces) {
    for (AnswerScanner::Piece& piece : pieces) {
      if (!all.empty() && all.back().part == piece.part) {
        all.back().text += piece.text;
      } else {
        all.push_back(std::move(piece));
      }
    }
  };
  for (const std::string_view chunk : chunks) {
    for (std::size_t at = 0; at < chunk.size(); at += is_by_bytes ? 1 : chunk.size()) {
      add(scanner.push(is_by_bytes ? chunk.substr(at, 1) : chunk));
    }
  }
  add(scanner.finish());
  return all;
}

std::string told(const Pieces& pieces) {
  std::string text;
  for (const auto& [piece, part] : pieces) {
    text += std::string(1, "tmac"[static_cast<int>(part)]) + "[" + piece + "]";
  }
  return text;
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece.text;
  return text;
}

/// name(arguments) of every call, and the content.
std::string read(const AnswerStart& start, const std::string& text) {
  CHECK(told(scanned(start, {text}, true)) == told(scanned(start, {text})));
  const SplitAnswer split = split_answer(text, start);
  std::string all;
  for (const auto& [name, arguments] : split.calls) all += name + "(" + arguments + ") ";
  return all + "|" + split.content;
}

}  // namespace

TEST_SUITE("core/text/tool_calls") {
  TEST_CASE("200 calls of each form: read as they were written, wherever they are cut") {
    for (const Written& form : writers) {
      std::mt19937 random(11);
      const AnswerStart start = start_of(form);
      for (int round = 0; round < 200; ++round) {
        const Json arguments = random_arguments(random);
        const std::string text = form.write("get_weather", arguments);
        CAPTURE(text);
        const SplitAnswer split = split_answer(text, start);
        REQUIRE(split.calls.size() == 1);
        CHECK(split.calls[0].name == "get_weather");
        CHECK(parse_json(split.calls[0].arguments, "arguments") == arguments);
        CHECK(split.content.empty());
        const Pieces whole = scanned(start, {text});
        CHECK(joined(whole) == text);
        CHECK(told(scanned(start, {text}, true)) == told(whole));
        const std::string_view view = text;
        for (std::size_t at = 1; at < text.size(); ++at) {
          const Pieces cut = scanned(start, {view.substr(0, at), view.substr(at)});
          if (told(cut) != told(whole)) FAIL(told(cut));
        }
      }
    }
  }

  TEST_CASE("200 damaged calls of each form: nothing is lost, wherever they are cut") {
    for (const Written& form : writers) {
      std::mt19937 random(12);
      const AnswerStart start = start_of(form);
      int refused = 0;
      for (int round = 0; round < 200; ++round) {
        std::string text = form.write("get_weather", random_arguments(random));
        const std::string other = form.write("stop", Json::object());
        for (std::size_t i = 1 + random() % 3; i > 0; --i) {
          const std::size_t at = random() % text.size(), count = random() % 9;
          switch (random() % 4) {
            case 0:
              text.erase(at, count);
              break;
            case 1:
              text.insert(at, other.substr(random() % other.size(), count));
              break;
            case 2:
              text.insert(at, text.substr(random() % text.size(), count));
              break;
            default:
              text.resize(at + 1);
          }
          if (text.empty()) text = "x";
        }
        CAPTURE(text);
        const Pieces whole = scanned(start, {text});
        CHECK(joined(whole) == text);
        CHECK(told(scanned(start, {text}, true)) == told(whole));
        const SplitAnswer split = split_answer(text, start);
        for (const ToolCall& call : split.calls) {
          CHECK(parse_json(call.arguments, "arguments").is_object());
        }
        if (!split.calls.empty() || split.reasoning) continue;
        ++refused;
        if (!start.markers.has_headers) CHECK(split.content == text);
      }
      CHECK(refused > 50);
    }
  }

  TEST_CASE("text around calls, several of them, and calls in thoughts") {
    for (const Written& form : writers) {
      if (form.form == std::string_view("harmony")) continue;
      CAPTURE(form.form);
      const AnswerStart start = start_of(form);
      const std::string call = form.write("stop", Json::object());
      const std::string other = form.write("get_weather", {{"count", 5}});
      CHECK(read(start, call) == "stop({}) |");
      CHECK(read(start, "I look.\n\n" + call + "\n" + other) ==
            "stop({}) get_weather({\"count\": 5}) |I look.");
      CHECK(read(start, call + other + " So.\n") == "stop({}) get_weather({\"count\": 5}) |So.\n");
      CHECK(read(start, "<think>" + call + "</think>\n" + other) ==
            "get_weather({\"count\": 5}) |");
      CHECK(split_answer("<think>" + call + "</think>", start).reasoning == call);
      const std::string begin(start.calls.form->begin);
      CHECK(read(start, begin + "... " + call) == "stop({}) |" + begin + "...");
      CHECK(read(start, begin + " is the marker.") == "|" + begin + " is the marker.");
      CHECK(read(start, call.substr(0, call.size() - 3)) ==
            (start.calls.form->end.empty() ? "|" + call.substr(0, call.size() - 3)
                                           : "|" + call.substr(0, call.size() - 3)));
      AnswerStart none = start;
      none.calls = {};
      CHECK(read(none, "I look. " + call) == "|I look. " + call);
    }
  }

  TEST_CASE("harmony: messages to tools are calls where their arguments are an object") {
    const AnswerStart start = start_of(writers[7]);
    const std::string thought = "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant";
    for (const std::string header :
         {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
          " to=functions.f<|channel|>commentary json<|message|>", " to=functions.f<|message|>"}) {
      CHECK(read(start, thought + header + "{\"a\": 1}") == "f({\"a\": 1}) |");
      CHECK(read(start, header + "{\"a\": 1}<|call|><|start|>assistant" + header + "{}<|call|>") ==
            "f({\"a\": 1}) f({}) |");
      CHECK(read(start, thought + header + "{\"a\": 1").ends_with("<|message|>{\"a\": 1"));
      CHECK(read(start, header + "{} and").ends_with("{} and"));
    }
    const std::string said = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
    CHECK(read(start, thought + said + "<|channel|>commentary to=python<|message|>{\"a\": 1}") ==
          "python({\"a\": 1}) |I look.");
  }

  TEST_CASE("what is meant without doubt is read, and what is not stays text") {
    const AnswerStart json = start_of(writers[0]), xml = start_of(writers[1]),
                      python = start_of(writers[3]), gemma = start_of(writers[4]);
    const auto body = [](const std::string& text) { return "<tool_call>" + text + "</tool_call>"; };
    CHECK(read(json, body(R"({"arguments": {"a": '5 "x"'}, "id": 7, "name": "f"})")) ==
          R"(f({"a": "5 \"x\""}) |)");
    CHECK(read(json, body("{\"name\": \"f\", \"parameters\": {\"a\": \"b\nc\"}}")) ==
          R"(f({"a": "b\u000ac"}) |)");
    CHECK(read(json, body(R"([{"name": "f"}, {"name": "g", "arguments": {}}])")) ==
          "f({}) g({}) |");
    for (const char* wrong :
         {"", "{}", R"({"name": 5, "arguments": {}})", R"({"name": "f", "arguments": [1]})",
          R"({"name": "f", "arguments": {"a": 01}})", R"({"name": "f", "arguments": {"a" 1}})",
          R"({"name": "f", "arguments": {"a": 1, "a": 2}})", R"({"name": "f"} {"name": "g"})",
          R"({"name": "f", "arguments": {"a": "\ud800"}})", "[]"}) {
      CAPTURE(wrong);
      CHECK(read(json, body(wrong)) == "|" + body(wrong));
    }
    const std::string deep(500, '[');
    CHECK(read(json, body("{\"name\": \"f\", \"arguments\": {\"a\": " + deep + "}}")).front() ==
          '|');
    CHECK(read(python,
               "<|tool_call_start|>[f(a='\\d+\\'', b=[1, None], c={'d': True}), g()]"
               "<|tool_call_end|>") ==
          R"(f({"a": "\\d+'", "b": [1, null], "c": {"d": true}}) g({}) |)");
    CHECK(read(gemma, "<|tool_call>call:f{a:{b:<|\"|>c \"}<|\"|>},d:[1,2.50]}<tool_call|>") ==
          R"(f({"a": {"b": "c \"}"}, "d": [1, 2.50]}) |)");
    // A schema says what is text; where there is none, what reads as something else is that.
    const auto value = [&](const std::string& key, const std::string& text) {
      return read(xml, body("<function=get_weather><parameter=" + key + ">\n" + text +
                            "\n</parameter></function>"));
    };
    CHECK(value("text", "5") == "get_weather({\"text\": \"5\"}) |");
    CHECK(value("text", "") == "get_weather({\"text\": \"\"}) |");
    CHECK(value("count", "5.0") == "get_weather({\"count\": 5.0}) |");
    CHECK(value("count", "five") == "get_weather({\"count\": \"five\"}) |");
    CHECK(value("maybe", "None") == "get_weather({\"maybe\": null}) |");
    CHECK(value("maybe", "5") == "get_weather({\"maybe\": \"5\"}) |");
    CHECK(value("odd", "true") == "get_weather({\"odd\": true}) |");
    CHECK(value("odd", "\"a\"") == "get_weather({\"odd\": \"\\\"a\\\"\"}) |");
    CHECK(value("zip", "12345") == "get_weather({\"zip\": \"12345\"}) |");
    CHECK(value("ring", "12345") == "get_weather({\"ring\": 12345}) |");
    CHECK(value("unknown", "[1]") == "get_weather({\"unknown\": [1]}) |");
  }
}

}  // namespace tool_calls_test
