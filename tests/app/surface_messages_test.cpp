// Conversations as clients send them, and the choice of a chat template.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_messages_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// Its template takes texts, that of `lists` takes lists of parts too.
const std::string texts = HYB_TESTS_DIR "/golden/granite-dense-nope";
const std::string lists = HYB_TESTS_DIR "/golden/qwen3_5-text";

ToolResult tool(std::vector<std::string> arguments, std::string input = {}) {
  return run_tool({.arguments = std::move(arguments), .input = std::move(input)});
}

constexpr const char* conversation = R"([
  {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
  {"role": "assistant", "content": "Three.", "tool_calls": null, "refusal": null, "audio": null},
  {"role": "user", "content": "Four?", "name": null}])";

constexpr const char* picture = R"([{"role": "user", "content": [
  {"type": "image_url", "image_url": {"url": "https://x"}}]}])";

/// A model folder with three templates and no default among them, unless one is added.
std::string folder_with_templates(const TemporaryFolder& folder, bool has_default) {
  for (const auto& entry : std::filesystem::directory_iterator(texts)) {
    const auto name = entry.path().filename();
    if (name == "chat_template.jinja" || name == "tokenizer_config.json") continue;
    std::filesystem::copy_file(entry.path(), folder.path() / name);
  }
  Json named = Json::array();
  const auto add = [&](const char* name) {
    named.push_back({{"name", name},
                     {"template", std::string(name) + ": {{ messages[0].content }}" +
                                      (name == std::string_view("rag") ? "" : "{{ tools[1] }}")}});
  };
  if (has_default) add("default");
  add("tool_use");
  add("rag");
  folder.write("tokenizer_config.json", to_text({{"chat_template", std::move(named)}}));
  return folder.path().string();
}

}  // namespace

TEST_SUITE("app/surface_messages") {
  TEST_CASE("run, render and batch take the same conversation and make the same of it") {
    const TemporaryFolder folder;
    const std::string file = folder.write("messages.json", conversation).string();
    const std::string plain =
        folder
            .write("plain.json", R"([{"role": "user", "content": "One.\nTwo."},
                {"role": "assistant", "content": "Three."}, {"role": "user", "content": "Four?"}])")
            .string();
    const std::string shown = tool({"render", texts, "--messages", file}).out;
    CHECK(contains(shown, "One.\nTwo."));
    CHECK(shown == tool({"render", texts, "--messages", plain}).out);
    // Qwen's template writes parts one after the other.
    CHECK(contains(tool({"render", lists, "--messages", file}).out, "One.Two."));
    const ToolResult run = tool({"run", texts, "--messages", file, "-n", "6", "--json"});
    CHECK(run.exit_code == 0);
    const Json answer = parse_json(run.out, "stdout");
    const ToolResult same = tool({"run", texts, "--messages", "-", "-n", "6"}, conversation);
    CHECK(same.out == answer["choices"][0]["message"]["content"].get<std::string>() + "\n");
    const std::string line = to_text({{"messages", parse_json(conversation, "c")}}) + "\n";
    const std::string in = folder.write("in.jsonl", line).string();
    const std::string out = (folder.path() / "out.jsonl").string();
    CHECK(tool({"batch", texts, in, "-o", out, "-n", "6"}).exit_code == 0);
    const Json result = parse_json(content(out), "out");
    CHECK(result["response"]["body"]["choices"] == answer["choices"]);
  }

  TEST_CASE("what is not text is refused by its type") {
    const TemporaryFolder folder;
    const std::string file = folder.write("picture.json", picture).string();
    for (const std::string& model : {texts, lists}) {
      for (const char* command : {"run", "render"}) {
        const ToolResult result = tool({command, model, "--messages", file});
        CHECK(result.exit_code == 2);
        CHECK(contains(result.err, "of type \"image_url\"; only text is supported"));
      }
    }
    const std::string line = to_text({{"messages", parse_json(picture, "p")}}) + "\n";
    const std::string in = folder.write("in.jsonl", line).string();
    const std::string out = (folder.path() / "out.jsonl").string();
    CHECK(tool({"batch", texts, in, "-o", out}).exit_code == 5);
    CHECK(contains(content(out), "only text is supported"));
  }

  TEST_CASE("run --messages takes a request's body: what it says wins, as in batch") {
    const TemporaryFolder folder;
    Json body = {{"messages", parse_json(conversation, "c")}};
    body["max_tokens"] = 3;
    body["user"] = "somebody";
    body["stream"] = true;
    body["model"] = "another";
    const std::string file = folder.write("body.json", to_text(body)).string();
    const ToolResult run =
        tool({"run", texts, "--messages", file, "-n", "6", "--ignore-eos", "--json"});
    CHECK(parse_json(run.out, "stdout")["usage"]["completion_tokens"] == 3);
    CHECK(contains(run.err, "body.json asks for the model \"another\"; "));
    body["model"] = texts + "/.";
    folder.write("body.json", to_text(body));
    CHECK_FALSE(contains(tool({"run", texts, "--messages", file}).err, "asks for the model"));
    body["bad_words"] = {"x"};
    folder.write("body.json", to_text(body));
    for (const char* command : {"run", "render"}) {
      const ToolResult refused = tool({command, texts, "--messages", file});
      CHECK(refused.exit_code == 2);
      CHECK(contains(refused.err, "bad_words: only [] is obeyed"));
    }
    body.erase("bad_words");
    body["n"] = 2;
    folder.write("body.json", to_text(body));
    const ToolResult two = tool({"run", texts, "--messages", file});
    CHECK(two.exit_code == 2);
    CHECK(contains(two.err, "more than one answer needs --json"));
    CHECK(parse_json(tool({"run", texts, "--messages", file, "--json"}).out, "out")["choices"]
              .size() == 2);
    folder.write("body.json", R"({"messages": []})");
    CHECK(contains(tool({"run", texts, "--messages", file}).err, "a list of at least one"));
    folder.write("body.json", R"([{"role": "user", "content": "a"}, {"role": 7}])");
    for (const char* command : {"run", "render"}) {
      const ToolResult odd = tool({command, texts, "--messages", file});
      CHECK(odd.exit_code == 2);
      CHECK(contains(odd.err, "body.json: messages[1] is not an object with a role in text"));
    }
    CHECK(tool({"run", texts, "--messages", file, "--raw"}).exit_code == 2);
    CHECK(tool({"run", texts, "--messages", file, "-p", "x"}).exit_code == 2);
  }

  TEST_CASE("continue_final_message: run, render and batch go on with the last message") {
    const TemporaryFolder folder;
    Json body = {{"messages",
                  {{{"role", "user"}, {"content", "Count."}},
                   {{"role", "assistant"}, {"content", "One, "}}}},
                 {"max_tokens", 3}};
    const auto asked = [&](const char* command, const std::vector<std::string>& more) {
      const std::string file = folder.write("body.json", to_text(body)).string();
      std::vector<std::string> words = {command, texts, "--messages", file};
      words.insert(words.end(), more.begin(), more.end());
      return tool(words);
    };
    const std::string begun = asked("render", {"--no-generation-prompt"}).out;
    body["add_generation_prompt"] = false;
    CHECK(asked("render", {}).out == begun);
    body["continue_final_message"] = true;
    const std::string shown = asked("render", {}).out;
    CHECK(shown.ends_with("One, "));
    CHECK(begun.starts_with(shown));
    const Json ids = parse_json(asked("render", {"--tokens"}).out, "ids");
    const ToolResult run = asked("run", {"--json"});
    CAPTURE(run.err);
    CHECK(run.err.empty());
    const Json answer = parse_json(run.out, "stdout");
    CHECK(answer["usage"]["prompt_tokens"] == ids.size());
    const std::string in = folder.write("in.jsonl", to_text(body) + "\n").string();
    const Json line = parse_json(tool({"batch", texts, in, "-o", "-"}).out, "out");
    CHECK(line["response"]["body"]["choices"] == answer["choices"]);
    body["add_generation_prompt"] = true;
    for (const char* command : {"run", "render"}) {
      const ToolResult both = asked(command, {});
      CHECK(both.exit_code == 2);
      CHECK(contains(both.err, "continue_final_message: "));
    }
    folder.write("in.jsonl", to_text(body) + "\n");
    const ToolResult failed = tool({"batch", texts, in, "-o", "-"});
    CHECK(failed.exit_code == 5);
    CHECK(contains(failed.out, "continue_final_message: "));
  }

  TEST_CASE("the demo takes calls of tools, contents that are null, and what tools say") {
    const TemporaryFolder folder;
    const std::string file = folder
                                 .write("messages.json", R"([
      {"role": "user", "content": [{"type": "text", "text": "Rain?"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "5 C"},
      {"role": "assistant", "content": null}, {"role": "user", "content": "And?"}])")
                                 .string();
    const auto turn = [](const std::string& role, const std::string& text) {
      return "<|start_of_role|>" + role + "<|end_of_role|>" + text;
    };
    const std::string end = "<|end_of_text|>\n";
    CHECK(tool({"render", "demo", "--messages", file}).out ==
          turn("user", "Rain?" + end) +
              turn("assistant",
                   R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)" + end) +
              turn("tool", "5 C" + end) + turn("assistant", end) + turn("user", "And?" + end) +
              turn("assistant", ""));
    CHECK(tool({"run", "demo", "--messages", file, "-n", "2"}).exit_code == 0);
  }

  TEST_CASE("--chat-template takes a file, or the name of one of the model's templates") {
    const TemporaryFolder folder;
    const std::string model = folder_with_templates(folder, true);
    const auto shown = [&](const std::string& choice) {
      return tool({"render", model, "-p", "x", "--chat-template", choice});
    };
    CHECK(tool({"render", model, "-p", "x"}).out == "default: x");
    CHECK(shown("rag").out == "rag: x");
    CHECK(tool({"render", model, "-p", "x", "--template", "rag"}).out == "rag: x");
    const std::string file = folder.write("mine.jinja", "mine").string();
    CHECK(shown(file).out == "mine");
    CHECK(shown((folder.path() / "tokenizer_config.json").string()).out == "default: x");
    const ToolResult unknown = shown("nope");
    CHECK(unknown.exit_code == 2);
    CHECK(contains(unknown.err,
                   "'nope' is neither a file nor a template of the model: default, "
                   "tool_use, rag"));
    for (const char* command : {"run", "chat", "batch"}) {
      std::vector<std::string> words = {command, model};
      if (words[0] == "batch") words.push_back(folder.write("in", "hello\n").string());
      if (words[0] == "batch") words.insert(words.end(), {"-o", (folder.path() / "out").string()});
      words.insert(words.end(), {"--chat-template", "nope"});
      const ToolResult result = tool(words, "x\n");
      CHECK(result.exit_code == 2);
      CHECK(contains(result.err, "default, tool_use, rag"));
    }
    const std::string asked =
        folder
            .write("asked.json", R"({"messages": [{"role": "user", "content": "x"}],
                                       "tools": [{"function": {"name": "f"}}]})")
            .string();
    CHECK(tool({"render", model, "--messages", asked}).out == "tool_use: x");
    const ToolResult without =
        tool({"render", model, "--messages", asked, "--chat-template", "rag"});
    CHECK(without.exit_code == 2);
    CHECK(contains(without.err, "tools: the model's chat template does not read it"));
  }

  TEST_CASE("render shows the very prompt that run and batch run, whatever the body says") {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "body.json").string();
    const std::string in = (folder.path() / "in").string(), out = (folder.path() / "out").string();
    constexpr const char* tools =
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
    std::string plain;
    for (const std::string& members :
         {std::string(R"("temperature":0)"), std::string(tools),
          tools + std::string(R"(,"tool_choice":"none")"),
          std::string(R"("enable_thinking":false)"),
          std::string(R"("thinking":{"type":"enabled"},"store":true)"),
          std::string(R"("chat_template_kwargs":{"enable_thinking":false})")}) {
      CAPTURE(members);
      const std::string body =
          R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1,)" + members + "}\n";
      folder.write("body.json", body);
      folder.write("in", body);
      const ToolResult rendered = tool({"render", lists, "--messages", file, "--tokens"});
      CHECK(rendered.exit_code == 0);
      const std::size_t shown = parse_json(rendered.out, "ids").size();
      const Json run = parse_json(tool({"run", lists, "--messages", file, "--json"}).out, "run");
      CHECK(run["usage"]["prompt_tokens"] == shown);
      CHECK(tool({"batch", lists, in, "-o", out, "--force"}).exit_code == 0);
      const Json result = parse_json(content(out), "out");
      CHECK(result["response"]["body"]["usage"]["prompt_tokens"] == shown);
      std::filesystem::remove(out);
      if (plain.empty()) plain = rendered.out;
      const bool is_plain = members.ends_with("0");
      CHECK((rendered.out == plain) == (is_plain || contains(members, "enabled")));
    }
  }

  TEST_CASE("a byte order mark is no part of a text, and another encoding is named") {
    const TemporaryFolder folder;
    const std::string mark = "\xEF\xBB\xBF";
    for (const auto& entry : std::filesystem::directory_iterator(texts)) {
      const auto name = entry.path().filename();
      const bool is_text = name.extension() == ".json" || name.extension() == ".jinja";
      folder.write(name.string(), (is_text ? mark : "") + content(entry.path()));
    }
    const std::string model = folder.path().string();
    const std::string prompt = folder.write("prompt", mark + "Hello").string();
    const std::string body =
        folder.write("body", mark + R"([{"role":"user","content":"Hello"}])").string();
    const std::string shown = tool({"render", texts, "-p", "Hello", "--tokens"}).out;
    CHECK(tool({"render", model, "-f", prompt, "--tokens"}).out == shown);
    CHECK(tool({"render", model, "--tokens"}, mark + "Hello").out == shown);
    CHECK(tool({"render", model, "--messages", body, "--tokens"}).out == shown);
    CHECK(tool({"render", model, "--messages", "-", "--tokens"}, content(body)).out == shown);
    CHECK(tool({"run", model, "-p", "Hello", "-n", "3"}).out ==
          tool({"run", texts, "-p", "Hello", "-n", "3"}).out);
    const std::string wide = folder.write("wide", std::string("\xff\xfeh\0", 4)).string();
    for (const char* option : {"-f", "--messages", "--system-file", "--chat-template"}) {
      CAPTURE(option);
      const ToolResult refused = tool({"render", texts, option, wide}, "x");
      CHECK(refused.exit_code == 3);
      CHECK(contains(refused.err, "wide: is text in UTF-16, and UTF-8 is read"));
    }
  }

  TEST_CASE("without a default among its templates a model says their names") {
    const TemporaryFolder folder;
    const std::string model = folder_with_templates(folder, false);
    const ToolResult result = tool({"run", model, "-p", "x"});
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "no default among its chat templates"));
    CHECK(contains(result.err, "--chat-template names one of tool_use, rag"));
    CHECK(tool({"run", model, "-p", "x", "-n", "2", "--chat-template", "rag"}).exit_code == 0);
  }
}

}  // namespace surface_messages_test
