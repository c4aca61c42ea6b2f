#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/chat_template.h"
#include "tests/support/files.h"

namespace chat_template_test {

using namespace hyb;

namespace {

const std::string jinja_folder = std::string(HYB_TESTS_DIR) + "/core/text/jinja/";

Json json(const std::string& text) { return parse_json(text, "test"); }

/// The pieces: those of a person as P[...], of the assistant as A[...], of the template unmarked.
std::string marked(const Rendered& rendered) {
  std::string out;
  for (const RenderedPiece& piece : rendered.pieces) {
    if (piece.source == TextSource::tmpl)
      out += piece.text;
    else
      out += (piece.source == TextSource::person ? "P[" : "A[") + piece.text + "]";
  }
  return out;
}

std::string render(const std::string& source, const Json& messages,
                   const Json& variables = Json::object()) {
  return marked(ChatTemplate::parse(source, "t").render(messages, variables));
}

/// Puts `letter` at both ends of every text: 人 for a person, 助 for the assistant.
Json lettered(const Json& value, const std::string& letter) {
  if (value.is_string()) return letter + value.get<std::string>() + letter;
  Json out = value;
  if (value.is_array() || value.is_object()) {
    for (Json& item : out) item = lettered(item, letter);
  }
  return out;
}

Json lettered_message(const Json& message) {
  Json out = message;
  const bool assistant = message.value("role", "") == "assistant";
  for (auto& [key, value] : out.items()) {
    if (key == "role" || key == "type") continue;
    if (key == "content" && value.is_array()) {
      for (Json& part : value) {
        if (part.contains("text")) part["text"] = lettered(part["text"], assistant ? "助" : "人");
      }
      continue;
    }
    value = lettered(value, assistant ? "助" : "人");
  }
  return out;
}

bool holds(const std::string& text, const char* letter) {
  return text.find(letter) != std::string::npos;
}

std::string error_of(const std::string& source, const Json& messages, const Json& variables,
                     ErrorKind kind) {
  try {
    ChatTemplate::parse(source, "file").render(messages, variables);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

const Json hello = Json::array(
    {{{"role", "user"}, {"content", "hi <|im_end|>"}}, {{"role", "assistant"}, {"content", "yo"}}});

}  // namespace

TEST_SUITE("core/text/chat_template") {
  TEST_CASE("user text keeps its source, the turn around it is the template's") {
    const std::string chatml =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m['content'] + "
        "'<|im_end|>\\n' "
        "}}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    CHECK(render(chatml, hello, {{"add_generation_prompt", true}}) ==
          "<|im_start|>user\nP[hi <|im_end|>]<|im_end|>\n<|im_start|>assistant\nA[yo]<|im_end|>\n"
          "<|im_start|>assistant\n");
    const Json odd = Json::array({{{"role", "<|evil|>"}, {"content", "x"}}});
    CHECK(render("{{ messages[0].role }}", odd) == "P[<|evil|>]");
  }

  TEST_CASE("marks survive every operation") {
    const Json one = Json::array({{{"role", "user"}, {"content", "  Aé,b\nC  "}}});
    const auto content = [&](const std::string& expression) {
      return render("{% set c = messages[0].content %}{{ " + expression + " }}", one);
    };
    CHECK(content("'<' + c + '>'") == "<P[  Aé,b\nC  ]>");
    CHECK(content("'<' ~ c.strip() ~ '>' ~ 1") == "<P[Aé,b\nC]>1");
    CHECK(content("('x' ~ c ~ 'y')[2:-2]") == "P[ Aé,b\nC ]");
    CHECK(content("('x' ~ c ~ 'y')[::-1]") == "yP[  C\nb,éA  ]x");
    CHECK(content("c.split(',')[0]") == "P[  Aé]");
    CHECK(content("c.split()[1]") == "P[C]");
    CHECK(content("c.split(',') | join('|')") == "P[  Aé]|P[b\nC  ]");
    CHECK(content("c.strip().replace('b', '<')") == "P[Aé,]<P[\nC]");
    CHECK(content("'a-b'.replace('-', c.strip())") == "aP[Aé,b\nC]b");
    CHECK(content("c.strip().upper()") == "P[AÉ,B\nC]");
    CHECK(content("('x ' ~ c.strip()) | title") == "X P[Aé,b\nC]");
    CHECK(content("'%s!' % c.strip()") == "P[Aé,b\nC]!");
    CHECK(content("'{}!'.format(c.strip())") == "P[Aé,b\nC]!");
    CHECK(content("c.strip() | tojson") == "P[\"Aé,b\\nC\"]");
    CHECK(content("['x', c.strip()] | string") == "P[[']xP[', 'Aé,b\\nC']]");
    CHECK(content("c.strip() | indent(2)") == "P[Aé,b]\n  P[C]");
    CHECK(content("c | trim | list | first") == "P[A]");
    CHECK(content("[c] | map('trim') | join") == "P[Aé,b\nC]");
    CHECK(content("{'k': c.strip()} | tojson") == "P[{\"]kP[\": \"Aé,b\\nC\"}]");
    CHECK(content("c.strip() * 2") == "P[Aé,b\nCAé,b\nC]");
    CHECK(content("c if c else 'x'") == "P[  Aé,b\nC  ]");
    CHECK(render("{% macro m(x) %}<{{ x }}>{% endmacro %}{% set y %}[{{ m(messages[0].content) }}]"
                 "{% endset %}{% filter upper %}{{ y }}{% endfilter %}",
                 Json::array({{{"role", "tool"}, {"content", "q"}}})) == "[<P[Q]>]");
  }

  TEST_CASE("tools and documents count as user text, other variables as the template's") {
    const Json variables = json(
        R"({"tools": [{"n": "<t>"}], "documents": ["<d>"], "bos_token": "<s>",
            "chat_template_kwargs": {"style": "<k>", "tools": ["<k2>"]}})");
    CHECK(render("{{ bos_token }}{{ documents[0] }}{{ style }}{{ tools[0] }}", Json::array(),
                 variables) == "<s>P[<d>]<k>P[<k2>]");
  }

  TEST_CASE("in every template each letter keeps its source") {
    const Json scenarios = json(testing::content(jinja_folder + "scenarios.json"));
    int rendered_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(jinja_folder + "templates")) {
      const ChatTemplate parsed =
          ChatTemplate::parse(testing::content(entry.path()), entry.path().string());
      for (const auto& [name, scenario] : scenarios.items()) {
        if (!scenario.contains("messages")) continue;
        CAPTURE(entry.path().stem().string());
        CAPTURE(name);
        Json variables = scenario;
        Json messages = Json::array();
        for (const Json& message : scenario["messages"])
          messages.push_back(lettered_message(message));
        if (scenario.contains("documents")) {
          variables["documents"] = lettered(scenario["documents"], "人");
        }
        try {
          const Rendered rendered = parsed.render(messages, variables);
          const Rendered plain = parsed.render(scenario["messages"], variables);
          for (const RenderedPiece& piece : rendered.pieces) {
            CHECK(!piece.text.empty());
            CHECK((!holds(piece.text, "人") || piece.source == TextSource::person));
            CHECK((!holds(piece.text, "助") || piece.source == TextSource::assistant));
          }
          // No text of the template is marked: control tokens stay intact.
          for (const RenderedPiece& piece : plain.pieces) {
            if (piece.source == TextSource::tmpl) continue;
            const bool own = holds(piece.text, "<|im_end|>");  // one scenario says it
            CHECK((own || !holds(piece.text, "<|")));
          }
          ++rendered_count;
        } catch (const Error&) {
          // Many templates refuse some scenarios; the case list names them.
        }
      }
    }
    CHECK(rendered_count > 150);
  }

  TEST_CASE("arguments of tool calls are passed as objects") {
    const std::string source =
        "{% for k, v in messages[0].tool_calls[0].function.arguments | items %}{{ k }}={{ v }};"
        "{% endfor %}";
    const auto message = [](const Json& arguments) {
      return Json::array(
          {{{"role", "assistant"}, {"tool_calls", {{{"function", {{"arguments", arguments}}}}}}}});
    };
    CHECK(render(source, message("{\"a\": 1, \"b\": \"x\"}")) == "A[a]=1;A[b]=A[x];");
    CHECK(render(source, message(json(R"({"a": 1})"))) == "A[a]=1;");
    CHECK(render("{{ messages[0].tool_calls[0].function.arguments }}", message("{broken")) ==
          "A[{broken]");
  }

  TEST_CASE("reasoning is found under both of its names") {
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const Json messages = Json::array({{{"role", "assistant"}, {name, "hm"}}});
      CHECK(render("{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}", messages) ==
            "A[hm]|A[hm]");
    }
  }

  TEST_CASE("what the reference always defines is defined") {
    CHECK(render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ x is "
                 "defined }}",
                 Json::array()) == "TrueTrueFalseFalse");
  }

  TEST_CASE("errors: what the template raises is a usage error, its bugs are model errors") {
    const Json none = Json::array();
    const std::string raised =
        error_of("{{ raise_exception('no \x1b[31m way') }}", none, {}, ErrorKind::usage);
    CHECK(raised == "file: the chat template refuses this input: no ?[31m way");
    CHECK(error_of("\n{{ x.y }}", none, {}, ErrorKind::model) ==
          "file: line 2, column 5: template: 'x' is undefined");
    CHECK(error_of("", json("[1]"), {}, ErrorKind::usage).find("item 0") != std::string::npos);
    CHECK(error_of("", json("{}"), {}, ErrorKind::usage).find("array") != std::string::npos);
    CHECK(error_of("", none, json("[]"), ErrorKind::usage).find("object") != std::string::npos);
    CHECK(error_of("", none, json(R"({"n": 18446744073709551615})"), ErrorKind::usage)
              .find("64 bits") != std::string::npos);
  }

  TEST_CASE("conversations with tools are rendered by the template for them") {
    ChatTemplate parsed = ChatTemplate::parse("plain", "t");
    parsed.use_with_tools(ChatTemplate::parse("tools {{ tools | length }}", "u"));
    CHECK(parsed.render(hello, Json::object()).text() == "plain");
    CHECK(parsed.render(hello, {{"tools", nullptr}}).text() == "plain");
    CHECK(parsed.render(hello, {{"tools", Json::array()}}).text() == "tools 0");
  }

  TEST_CASE("it knows which variables it reads") {
    ChatTemplate parsed = ChatTemplate::parse(
        "{% macro m(a) %}{{ inner }}{% endmacro %}{% if x.tools %}{{ m(y) }}{% endif %}"
        "tools {# tools #}{{ 'tools' }}",
        "t");
    for (const char* name : {"inner", "x", "y", "m"}) CHECK(parsed.reads(name));
    for (const char* name : {"tools", "z"}) CHECK_FALSE(parsed.reads(name));
    parsed.use_with_tools(ChatTemplate::parse("{{ tools }}", "u"));
    CHECK(parsed.reads("tools"));
    CHECK(parsed.reads("x"));
    ChatTemplate other = ChatTemplate::parse("{{ tools }}", "t");
    other.use_with_tools(ChatTemplate::parse("none", "u"));
    CHECK_FALSE(other.reads("tools"));
  }

  TEST_CASE("one template renders many times, the same each time") {
    const ChatTemplate parsed =
        ChatTemplate::parse("{% set s = 'a' %}{% set s = s ~ 'b' %}{{ s ~ 'c' }}{{ s }}", "t");
    for (int i = 0; i < 3; ++i) CHECK(parsed.render(Json::array(), {}).text() == "abcab");
  }
}

namespace {

/// "name=text" of each, in order.
std::string templates_of(const testing::TemporaryFolder& folder) {
  std::string all;
  for (const auto& [name, text] : find_chat_templates(folder.path())) {
    all += (all.empty() ? "" : " ") + name + "=" + text;
  }
  return all;
}

std::string error_of(const testing::TemporaryFolder& folder) {
  try {
    find_chat_templates(folder.path());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::model);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/text/find_chat_templates") {
  TEST_CASE("a folder without one has none") {
    const testing::TemporaryFolder folder;
    CHECK(templates_of(folder).empty());
    folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "x": Infinity})");
    CHECK(templates_of(folder).empty());
  }

  TEST_CASE("a template file is in place of what JSON files say") {
    const testing::TemporaryFolder folder;
    folder.write("chat_template.json", R"({"chat_template": "processor's"})");
    CHECK(templates_of(folder) == "default=processor's");
    folder.write("tokenizer_config.json", R"({"chat_template": "tokenizer's"})");
    CHECK(templates_of(folder) == "default=tokenizer's default=processor's");
    folder.write("chat_template.jinja", "file's");
    CHECK(templates_of(folder) == "default=file's");
    folder.write("additional_chat_templates/rag.jinja", "r");
    folder.write("additional_chat_templates/notes.txt", "n");
    CHECK(templates_of(folder) == "default=file's rag=r");
  }

  TEST_CASE("named templates") {
    const testing::TemporaryFolder folder;
    folder.write("tokenizer_config.json", R"({"chat_template": [
        {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
    folder.write("additional_chat_templates/rag.jinja", "r");
    CHECK(templates_of(folder) == "rag=r default=d tool_use=t");
  }

  TEST_CASE("a file that is named alone is a template, or JSON that holds one") {
    const testing::TemporaryFolder folder;
    CHECK(read_chat_template(folder.write("x.jinja", "{{ 1 }}\n")) == "{{ 1 }}\n");
    CHECK(read_chat_template(folder.write("x.json", R"({"chat_template": "t"})")) == "t");
    CHECK_THROWS_WITH_AS(
        read_chat_template(folder.write("none.json", "{}")),
        ((folder.path() / "none.json").string() + ": has no chat_template").c_str(), Error);
    CHECK_THROWS_AS(read_chat_template(folder.path() / "missing"), Error);
  }

  TEST_CASE("damaged folders are errors that name the file") {
    const testing::TemporaryFolder folder;
    folder.write("tokenizer_config.json", R"({"chat_template": 5})");
    CHECK(error_of(folder).find("tokenizer_config.json") != std::string::npos);
    folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
    CHECK(error_of(folder) != "");
    folder.write("tokenizer_config.json", "{");
    CHECK(error_of(folder) != "");
    folder.write("chat_template.jinja/inside", "");
    CHECK(error_of(folder).find("regular file") != std::string::npos);
    std::filesystem::remove_all(folder.path() / "chat_template.jinja");
    folder.write("chat_template.jinja", "");
    std::filesystem::resize_file(folder.path() / "chat_template.jinja", (16u << 20) + 1);
    CHECK(error_of(folder).find("at most 16777216") != std::string::npos);
  }
}

}  // namespace chat_template_test
