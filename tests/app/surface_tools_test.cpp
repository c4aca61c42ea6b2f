// Tools in run, chat and batch, with a model whose answers are whatever tokens are biased to.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/strings.h"
#include "tests/app/random_model.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_tools_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr const char* call_token =
    "<|tool_call_start|>[get_weather(city='Paris', days=2)]<|tool_call_end|>";
constexpr const char* tools_text =
    R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}])";
constexpr const char* line = "call get_weather({\"city\": \"Paris\", \"days\": 2})\n";

/// A token is a whole call, another what is said before.
struct CallingModel {
  CallingModel() : model("granite-dense-nope") {
    Json config = parse_json(content(model.folder.path() / "config.json"), "config.json");
    config["logits_scaling"] = 1e6;  // all logits are alike but for what is added
    config["eos_token_id"] = 7;
    model.folder.write("config.json", to_text(config));
    const std::filesystem::path file = model.folder.path() / "tokenizer.json";
    Json tokenizer = parse_json(content(file), "tokenizer.json");
    std::int32_t id = 290;
    for (const char* text : {call_token, "I look.\n\n", "<|tool_call_start|>[get_weather(city="}) {
      tokenizer["added_tokens"].push_back(
          {{"id", id++}, {"content", text}, {"special", false}, {"normalized", false}});
    }
    model.folder.write("tokenizer.json", to_text(tokenizer));
    tools = model.folder.write("tools.json", tools_text).string();
  }

  /// Words first, then the call, then the end.
  ToolResult run(const std::string& command, std::vector<std::string> more,
                 const std::string& bias = "291=100 290=99.5 7=98.8", const std::string& input = {},
                 std::map<std::string, std::string> environment = {}) const {
    std::vector<std::string> all = {command,      "-m",
                                    model.path(), "--random-weights",
                                    "5",          "--memory",
                                    "200MB",      "--presence-penalty",
                                    "2",          "--temperature",
                                    "0"};
    for (const std::string_view word : words_of(bias)) {
      all.insert(all.end(), {"--logit-bias", std::string(word)});
    }
    all.insert(all.end(), more.begin(), more.end());
    return run_tool(
        {.arguments = std::move(all), .input = input, .environment = std::move(environment)});
  }

  RandomModel model;
  std::string tools;
};

Json choice_of(const ToolResult& result) {
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  return parse_json(result.out, "out")["choices"][0];
}

}  // namespace

TEST_SUITE("app/surface_tools") {
  TEST_CASE("calls are tool_calls, with the text before them, and a reason of their own") {
    const CallingModel model;
    const Json said = choice_of(model.run("run", {"--json", "--tools", model.tools, "-p", "x"}));
    CHECK(said["finish_reason"] == "tool_calls");
    CHECK(said["message"]["content"] == "I look.");
    REQUIRE(said["message"]["tool_calls"].size() == 1);
    const Json& call = said["message"]["tool_calls"][0];
    CHECK(call["type"] == "function");
    CHECK(call["id"].get<std::string>().starts_with("call_"));
    CHECK(call["function"] ==
          Json{{"name", "get_weather"}, {"arguments", R"({"city": "Paris", "days": 2})"}});
    const Json silent =
        choice_of(model.run("run", {"--json", "--tools", model.tools, "-p", "x"}, "290=100 7=99"));
    CHECK(silent["message"]["content"].is_null());
    CHECK(silent["finish_reason"] == "tool_calls");
    // Cut off, by a limit or by the model, or without tools.
    const Json limited =
        choice_of(model.run("run", {"--json", "--tools", model.tools, "-p", "x", "-n", "2"}));
    CHECK(limited["finish_reason"] == "length");
    CHECK(limited["message"]["tool_calls"].size() == 1);
    const Json cut =
        choice_of(model.run("run", {"--json", "--tools", model.tools, "-p", "x"}, "292=100 7=99"));
    CHECK(cut["finish_reason"] == "stop");
    CHECK(cut["message"]["content"] == "<|tool_call_start|>[get_weather(city=");
    const Json none = choice_of(model.run("run", {"--json", "-p", "x"}));
    CHECK(none["message"]["content"] == std::string("I look.\n\n") + call_token);
    CHECK(none["finish_reason"] == "stop");
  }

  TEST_CASE("where text is shown a call is a line") {
    const CallingModel model;
    CHECK(model.run("run", {"--tools", model.tools, "-p", "x"}).out ==
          std::string("I look.\n\n") + line);
    CHECK(model
              .run("run", {"--tools", model.tools, "-p", "x", "--thoughts", "show"},
                   "290=100 291=99 7=98")
              .out == std::string(line) + "I look.\n\n");
    CHECK(model.run("run", {"-p", "x"}, "290=100 7=99").out == std::string(call_token) + "\n");
    const ToolResult chat = model.run("chat", {"--tools", model.tools}, "290=100 7=99", "x\n");
    CHECK(chat.out == line);
  }

  TEST_CASE("bodies and lines have their own tools, or those of the option") {
    const CallingModel model;
    const TemporaryFolder folder;
    const std::string messages = R"("messages": [{"role": "user", "content": "x"}])";
    const std::string own = std::string(R"("tools": )") + Json::parse(tools_text).dump();
    const std::string in =
        folder
            .write("in", "{" + messages + "}\n{" + messages + ", " + own + "}\n{" + messages +
                             ", " + own + R"(, "tool_choice": "none"})" + "\n")
            .string();
    const auto reasons_of = [&](std::vector<std::string> more) {
      const std::string out = (folder.path() / "out").string();
      more.insert(more.begin(), {in, "-o", out, "--ordered"});
      CHECK(model.run("batch", std::move(more)).exit_code == 0);
      std::vector<std::string> reasons;
      for (const Json& result : hyb::testing::results(out)) {
        const Json& body = result["response"]["body"];
        reasons.push_back(body["choices"][0]["finish_reason"]);
        reasons.push_back(std::to_string(body["usage"]["prompt_tokens"].get<int>()));
      }
      for (const char* name : {"out", "out.job"}) std::filesystem::remove(folder.path() / name);
      return reasons;
    };
    const auto without = reasons_of({}), with = reasons_of({"--tools", model.tools});
    REQUIRE(without.size() == 6);
    CHECK(without[0] == "stop");
    CHECK(without[2] == "tool_calls");
    CHECK(without[4] == "stop");
    CHECK(without[5] == without[3]);  // the tools are in its prompt all the same
    CHECK(with[0] == "tool_calls");
    CHECK(with[1] == without[3]);
    const ToolResult text = model.run("batch", {in, "-o", "-", "--output-format", "text"});
    CHECK(contains(text.out, "I look.\\ncall get_weather({"));
  }

  TEST_CASE("a saved chat keeps its calls") {
    const CallingModel model;
    const TemporaryFolder data;
    const std::map<std::string, std::string> there = {{"XDG_DATA_HOME", data.path().string()}};
    for (int turn = 0; turn < 2; ++turn) {
      CHECK(
          model
              .run("chat", {"--tools", model.tools, "--session", "s"}, "290=100 7=99", "x\n", there)
              .out == line);
    }
    const ToolResult shown =
        run_tool({.arguments = {"sessions", "show", "s"}, .environment = there});
    CHECK(contains(shown.out, call_token));
  }

  TEST_CASE("an answer that has to be a call is one, with the arguments that its schema allows") {
    const CallingModel model;
    const TemporaryFolder folder;
    const auto asked = [&](const std::string& choice) {
      return folder
          .write("body.json", R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 900,
              "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters":
              {"properties": {"unit": {"$ref": "#/$defs/unit"}}, "required": ["unit"],
               "additionalProperties": false, "$defs": {"unit": {"enum": ["C"]}}}}},
              {"type": "function", "function": {"name": "g"}}], "tool_choice": )" +
                                  choice + "}")
          .string();
    };
    const std::string named = R"({"type": "function", "function": {"name": "f"}})";
    const ToolResult bound = model.run("run", {"--messages", asked(named), "--json"}, "");
    CHECK_FALSE(contains(bound.err, "strict"));
    const Json choice = choice_of(bound);
    CHECK(choice["finish_reason"] == "tool_calls");
    CHECK(choice["message"]["content"].is_null());
    REQUIRE(choice["message"]["tool_calls"].size() == 1);
    const Json& function = choice["message"]["tool_calls"][0]["function"];
    CHECK(function["name"] == "f");
    CHECK(function["arguments"] == R"({"unit": "C"})");
    CHECK(contains(model.run("run", {"--messages", asked(named)}, "").out,
                   "call f({\"unit\": \"C\"})"));
    const auto refusal = [&](const std::string& text) {
      const ToolResult result = model.run("run", {"--messages", asked(text), "--json"});
      CHECK(result.exit_code == 2);
      return result.err;
    };
    CHECK(contains(refusal(R"("any")"), "tool_choice: is \"auto\", \"none\", \"required\""));
    CHECK(contains(refusal(R"({"type": "function", "function": {"name": "h"}})"),
                   "tool_choice: tools has no function for it"));
    // Without a choice the text is free, and a call whose arguments are wrong can't be drawn.
    const ToolResult free = model.run("run", {"--messages", asked(R"("auto")"), "--json"});
    CHECK(free.exit_code == 0);
    CHECK_FALSE(contains(free.out, "get_weather"));
    CHECK_FALSE(contains(free.err, "strict"));
  }

  TEST_CASE("tools that are none are refused by what is wrong, before weights are read") {
    const CallingModel model;
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& text) {
      const std::string file = folder.write("t.json", text).string();
      const ToolResult result = model.run("run", {"--tools", file, "-p", "x"});
      CHECK(result.exit_code == 2);
      return result.err;
    };
    CHECK(contains(refusal("{}"), "t.json: is a list of tools"));
    CHECK(contains(refusal("[{}]"), "t.json: item 0: is no {\"type\": \"function\""));
    CHECK(contains(refusal(R"([{"function": {"name": "f"}}, {"function": {"name": ""}}])"),
                   "item 1: the function has no name"));
    CHECK(contains(refusal(R"([{"function": {"name": "f"}}, {"function": {"name": "f"}}])"),
                   "item 1: another tool has this name"));
    CHECK(contains(refusal(R"([{"function": {"name": "f", "parameters": 5}}])"),
                   "item 0: parameters: is no JSON schema"));
    CHECK(model.run("run", {"--tools", "/nonexistent", "-p", "x"}).exit_code != 0);
    CHECK(contains(model.run("run", {"--tools", model.tools, "--raw", "-p", "x"}).err,
                   "--tools needs a chat"));
  }
}

}  // namespace surface_tools_test
