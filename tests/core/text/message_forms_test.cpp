#include "core/text/message_forms.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/chat_template.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/fixed_time.h"

namespace message_forms_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::filesystem::path folder = std::filesystem::path(HYB_TESTS_DIR) / "core/text";

Json json(const std::string& text) { return parse_json(text, "test"); }
Json json_file(const char* name) { return json(content(folder / name)); }

/// The template of this name in scripts/golden/make_conversations.py.
ChatTemplate golden_template(const std::string& name) {
  const std::filesystem::path path =
      name == "granite_fixture" ? folder / "../../golden/granite-dense-nope/chat_template.jinja"
                                : folder / "jinja/templates" / (name + ".jinja");
  return ChatTemplate::parse(content(path), name);
}

/// Length and FNV-1a hash.
std::string mark_of(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  }
  return fmt::format("{} {:016x}", text.size(), hash);
}

/// hyb's text, or why there is none.
std::pair<std::string, std::string> rendered(const ChatTemplate& chat_template,
                                             const Json& conversation) {
  Json variables = conversation;
  variables.erase("messages");
  variables.erase("name");
  variables["bos_token"] = "<s>";
  variables["eos_token"] = "</s>";
  try {
    return {chat_template.render(conversation["messages"], variables, {}, fixed_time()).text(), ""};
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

std::string text_of(const std::string& source, const Json& messages) {
  return ChatTemplate::parse(source, "t").render(messages, Json::object()).text();
}

const Json parts = json(R"([{"role": "user", "content": [
    {"type": "text", "text": "a"}, {"text": "b"}, {"type": "text", "text": "c", "x": 1}]}])");

Json call_with(const Json& arguments) {
  Json call = {{"type", "function"}};
  call["function"] = {{"name", "f"}, {"arguments", arguments}};
  Json message = {{"role", "assistant"}};
  message["tool_calls"] = Json::array({std::move(call)});
  return Json::array({std::move(message)});
}

}  // namespace

TEST_SUITE("core/text/message_forms") {
  TEST_CASE("conversations as clients send them render as transformers renders them") {
    const Json conversations = json_file("conversations.json");
    CHECK(conversations.size() == 32);
    const Json golden = json_file("conversation_renderings.json");
    int renderings = 0;
    for (const auto& [name, marks] : golden.items()) {
      const ChatTemplate chat_template = golden_template(name);
      CHECK(marks.size() == conversations.size());
      for (const Json& conversation : conversations) {
        const std::string title = conversation["name"];
        std::string wanted = marks[title];
        if (wanted.ends_with(" rewritten")) wanted.resize(wanted.size() - 10);
        const auto [text, error] = rendered(chat_template, conversation);
        CAPTURE(name);
        CAPTURE(title);
        CAPTURE(text);
        CAPTURE(error);
        CHECK((error.empty() ? mark_of(text) : "error") == wanted);
        ++renderings;
      }
    }
    CHECK(renderings == 16 * 32);
  }

  TEST_CASE("members that are null are left out, and nothing inside of others") {
    const Json messages = json(R"([{"role": "user", "content": null, "name": "n",
                                    "tool_calls": [{"id": null}]}])");
    CHECK(text_of("{{ messages[0] | tojson }}", messages) ==
          R"({"role": "user", "name": "n", "tool_calls": [{"id": null}]})");
  }

  TEST_CASE("content that is null stays so beside calls that a template shows with it alone") {
    // As DeepSeek-R1's: calls where the content is none, else the content.
    const std::string source =
        "{% for m in messages %}{% if m['content'] is none %}{% for c in m['tool_calls'] %}"
        "{{ 'CALL ' + c['function']['name'] + c['function']['arguments'] }}{% endfor %}"
        "{% elif m['role'] == 'assistant' %}{{ 'A' + m['content'] }}"
        "{% else %}{{ m['content'] }}{% endif %}{% endfor %}";
    Json messages = call_with(json(R"({"a": 1})"));
    messages[0]["content"] = nullptr;
    messages.push_back({{"role", "user"}, {"content", "u"}, {"name", nullptr}});
    CHECK(text_of(source, messages) == "CALL f{\"a\":1}u");
  }

  TEST_CASE("parts are joined for templates that take texts, kept for those that take lists") {
    CHECK(text_of("{% for m in messages %}<{{ m.content }}>{% endfor %}", parts) == "<a\nb\nc>");
    CHECK(text_of("{% for m in messages %}<{{ m.content | string }}>{% endfor %}", parts) ==
          "<a\nb\nc>");
    const std::string lists = "{% for p in m.content %}<{{ p.text }}{{ p.x }}>{% endfor %}";
    CHECK(text_of("{% for m in messages %}" + lists + "{% endfor %}", parts) == "<a><b><c1>");
    const std::string both =
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
        "{% else %}" +
        lists + "{% endif %}{% endfor %}";
    CHECK(text_of(both, parts) == "<a><b><c1>");
    const Json text = json(R"([{"role": "user", "content": "t"}])");
    CHECK(text_of(both, text) == "t");
    // Where lists alone are shown a text becomes one.
    CHECK(text_of("{% for m in messages %}" + lists + "{% endfor %}", text) == "<t>");
    // Each role for itself.
    const std::string by_role = "{% for m in messages %}{% if m.role == 'user' %}" + lists +
                                "{% else %}{{ m.content }}{% endif %}{% endfor %}";
    Json two = parts;
    two.push_back({{"role", "assistant"}, {"content", parts[0]["content"]}});
    CHECK(text_of(by_role, two) == "<a><b><c1>a\nb\nc");
  }

  TEST_CASE("what is not text is refused by its type, wherever it is") {
    const auto refusal = [](const char* part) {
      const Json messages = json(std::string(R"([{"role": "system", "content": ""},
          {"role": "user", "content": [{"type": "text", "text": "a"}, )") +
                                 part + "]}]");
      return error_text([&] {
        text_of(
            "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}"
            "{% endfor %}",
            messages);
      });
    };
    CHECK(refusal(R"({"type": "image_url", "image_url": {"url": "x"}})") ==
          "messages: item 1: a part of its content is of type \"image_url\"; only text is "
          "supported");
    CHECK(contains(refusal(R"({"type": "input_audio"})"), "of type \"input_audio\";"));
    CHECK(contains(refusal(R"({"image": "x"})"), "is without a type;"));
    CHECK(contains(refusal(R"({"type": "text", "text": null})"), "has no text"));
    CHECK(contains(refusal("\"b\""), "is not an object"));
  }

  TEST_CASE("arguments of calls are what the template reads: an object, or a text") {
    const std::string begin = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
    const std::string end = "{% endfor %}{% endfor %}";
    const std::string written = R"({"a":1})";
    const Json object = json(written);
    const std::string as_object = begin + "{{ c.function.arguments | tojson }}" + end;
    CHECK(text_of(as_object, call_with(written)) == R"({"a": 1})");
    CHECK(text_of(as_object, call_with(object)) == R"({"a": 1})");
    CHECK(text_of(as_object, call_with(" ")) == "{}");
    CHECK(text_of(as_object, call_with("{broken")) == R"("{broken")");
    const std::string as_text = begin + "{{ '<' + c.function.arguments + '>' }}" + end;
    CHECK(text_of(as_text, call_with(written)) == R"(<{"a":1}>)");
    CHECK(text_of(as_text, call_with(object)) == R"(<{"a":1}>)");
    const std::string as_either = begin +
                                  "{% set a = c.function.arguments %}"
                                  "{{ a if a is string else a | tojson }}" +
                                  end;
    CHECK(text_of(as_either, call_with(written)) == R"({"a":1})");
    CHECK(text_of(as_either, call_with(object)) == R"({"a": 1})");
  }

  TEST_CASE("the form of calls is the one that the template shows past ones in") {
    const std::map<std::string, std::string> begins = {{"qwen35", "<tool_call> <function="},
                                                       {"nemotron3", "<tool_call> <function="},
                                                       {"granite4", "<tool_call> "},
                                                       {"falcon_h1", "<tool_call> "},
                                                       {"lfm2", "<|tool_call_start|> "},
                                                       {"harmony", "to= "},
                                                       {"nemotron2", "<TOOLCALL> "},
                                                       {"jamba", "<tool_calls> "},
                                                       {"granite_fixture", ""},
                                                       {"kimi2", ""},
                                                       {"chatml", ""},
                                                       {"granite33", ""}};
    const auto told = [](const ChatTemplate& chat_template) {
      const CallForm* const form = chat_template.call_form();
      return form == nullptr ? std::string()
                             : std::string(form->begin) + " " + std::string(form->before_name);
    };
    for (const auto& [name, begin] : begins) {
      CAPTURE(name);
      CHECK(told(golden_template(name)) == begin);
    }
    // As in the templates of GLM and Gemma 4; where the latter puts a text between its braces, it
    // gets an object.
    const std::string calls = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
    const std::string end = "{% endfor %}{% endfor %}";
    CHECK(told(ChatTemplate::parse(
              calls +
                  "<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() "
                  "%}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}"
                  "</tool_call>" +
                  end,
              "pairs")) == "<tool_call> ");
    const ChatTemplate gemma = ChatTemplate::parse(
        calls +
            "<|tool_call>call:{{ c.function.name }}{ {%- if c.function.arguments is string %}{{ "
            "c.function.arguments }}{% else %}{% for k, v in c.function.arguments.items() %}{{ k "
            "}}:<|\"|>{{ v }}<|\"|>{% endfor %}{% endif %}}<tool_call|>" +
            end,
        "gemma");
    CHECK(told(gemma) == "<|tool_call> call:");
    const Json asked = json(R"([{"role": "user", "content": "x"}, {"role": "assistant",
        "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]}])");
    CHECK(gemma.render(asked, nullptr).text() == "<|tool_call>call:f{a:<|\"|>b<|\"|>}<tool_call|>");
  }

  TEST_CASE("thoughts go where the template reads them") {
    for (const char* given : {"reasoning_content", "thinking", "reasoning"}) {
      for (const char* read : {"reasoning_content", "thinking", "reasoning"}) {
        const Json messages = Json::array({{{"role", "assistant"}, {given, "hm"}}});
        CHECK(text_of(std::string("{% for m in messages %}{{ m.") + read + " }}{% endfor %}",
                      messages) == "hm");
      }
    }
  }
}

}  // namespace message_forms_test
