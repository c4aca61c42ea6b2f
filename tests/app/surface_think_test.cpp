#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace hyb::testing {

inline std::string golden(const std::string& name) {
  return std::string(HYB_TESTS_DIR "/golden/") + name;
}

/// Makes a model say these tokens, each once, in this order.
inline std::vector<std::string> script(const std::vector<int>& ids) {
  std::vector<std::string> words = {"--presence-penalty", "100"};
  int bias = 96;
  for (const int id : ids) {
    words.insert(words.end(), {"--logit-bias", std::to_string(id) + "=" + std::to_string(bias)});
    bias -= 12;
  }
  return words;
}

inline ToolResult tool(std::vector<std::string> words, const std::vector<std::string>& more = {},
                       std::string input = {}) {
  words.insert(words.end(), more.begin(), more.end());
  return run_tool({.arguments = std::move(words), .input = std::move(input)});
}

/// The message of `hyb run --json`.
inline Json message_of(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
  words.push_back("--json");
  const ToolResult result = tool(std::move(words), more);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return parse_json(result.out, "stdout")["choices"][0]["message"];
}

/// A thinking model's fixture: A and B as tokens, the end of a thought, the end of an answer.
struct Thinker {
  const char* name;
  int a, b, thought_end, answer_end;
};

inline constexpr Thinker thinkers[] = {{"nemotron-moe", 48, 49, 13, 11},
                                       {"qwen3_5-text", 32, 33, 283, 279}};

inline std::vector<std::string> thought_script(const Thinker& thinker) {
  return script({thinker.a, thinker.thought_end, thinker.b, thinker.answer_end});
}

inline std::vector<int> ids_of(const ToolResult& rendered) {
  REQUIRE(rendered.exit_code == 0);
  return parse_json(rendered.out, "ids").get<std::vector<int>>();
}

}  // namespace hyb::testing

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("app/surface_think") {
  TEST_CASE("every end-of-answer token of every file ends an answer") {
    struct Row {
      const char* name;
      int a;
      std::vector<int> stops;
    };
    for (const Row& row : {Row{"nemotron-dense", 46, {2, 12}}, Row{"nemotron-moe", 48, {2, 11}},
                           Row{"qwen3_5-text", 32, {279, 277}},
                           Row{"qwen3-next-odd", 32, {278, 276}}, Row{"lfm2-dense", 44, {7}}}) {
      for (const int stop : row.stops) {
        CAPTURE(row.name);
        CAPTURE(stop);
        const ToolResult result =
            tool({"run", golden(row.name), "-p", "x", "-n", "9", "--json"}, script({row.a, stop}));
        REQUIRE(result.exit_code == 0);
        const Json answer = parse_json(result.out, "stdout");
        CHECK(answer["choices"][0]["finish_reason"] == "stop");
        CHECK(answer["usage"]["completion_tokens"] == 2);
      }
    }
  }

  TEST_CASE("BOS occurs once, whether the template, the tokenizer or the text brings it") {
    for (const char* name : {"nemotron-dense", "lfm2-dense"}) {
      CAPTURE(name);
      const std::vector<int> ids = ids_of(tool({"render", golden(name), "-p", "x", "--tokens"}));
      CHECK(ids.front() == 1);
      CHECK(std::count(ids.begin(), ids.end(), 1) == 1);
      const std::string bos = std::string(name) == "lfm2-dense" ? "<|startoftext|>" : "<s>";
      const auto prompt_tokens = [&](const std::string& text) {
        const ToolResult result = tool(
            {"run", golden(name), "--raw", "--allow-special", "-p", text, "-n", "1", "--json"});
        return parse_json(result.out, "stdout")["usage"]["prompt_tokens"].get<int>();
      };
      CHECK(prompt_tokens("x") == 2);
      CHECK(prompt_tokens(bos + "x") == 2);
    }
  }

  TEST_CASE("a base model says how it is used, before its weights are read") {
    const std::string model = golden("bamba-1");
    const TemporaryFolder folder;
    const std::string in = folder.write("in", "hello\n").string();
    const std::string out = (folder.path() / "out").string();
    for (const std::vector<std::string>& words : {std::vector<std::string>{"run", model, "-p", "x"},
                                                  {"chat", model},
                                                  {"batch", model, in, "-o", out},
                                                  {"batch", model, in, "--validate"}}) {
      const ToolResult result = tool(words);
      CHECK(result.exit_code == 3);
      CHECK(contains(result.err, "has no chat template"));
      CHECK(contains(result.err, "--raw"));
      CHECK(!contains(result.err, "hyb run"));
      CHECK(result.out.empty());
    }
    CHECK(content(out).empty());
    CHECK(tool({"run", model, "--raw", "-p", "x", "-n", "2"}).exit_code == 0);
    const std::string lines = folder
                                  .write("lines", R"({"messages":[{"role":"user","content":"x"}]}
{"prompt":"x"}
)")
                                  .string();
    CHECK(tool({"batch", model, lines, "-o", out, "-n", "2", "--raw"}).exit_code == 5);
    CHECK(contains(content(out), "no chat template to take them"));
    CHECK(contains(content(out), "\"status_code\":200"));
  }

  TEST_CASE("--think on and off, and what the template does by itself") {
    const auto render = [](const char* name, const std::vector<std::string>& more) {
      const ToolResult result = tool({"render", golden(name), "-p", "x"}, more);
      CHECK(result.exit_code == 0);
      return result.out;
    };
    for (const char* name : {"nemotron-moe", "qwen3_5-text"}) {
      CAPTURE(name);
      CHECK(render(name, {"--think", "on"}) == render(name, {}));
      CHECK(render(name, {}).ends_with("<think>\n"));
    }
    CHECK(render("nemotron-moe", {"--think", "off"}).ends_with("assistant\n<think></think>"));
    CHECK(render("qwen3_5-text", {"--think", "off"}).ends_with("<think>\n\n</think>\n\n"));
    for (const char* name : {"nemotron-dense", "lfm2-dense", "qwen3-next-odd"}) {
      for (const char* command : {"render", "run", "chat"}) {
        CAPTURE(name);
        const ToolResult refused = tool({command, golden(name), "--think", "off"}, {}, "x\n");
        CHECK(refused.exit_code == 2);
        CHECK(contains(refused.err, "--think: the model's chat template reads neither"));
        CHECK(refused.out.empty());
      }
    }
    CHECK(tool({"run", golden("nemotron-moe"), "-p", "x", "--think", "maybe"}).exit_code == 2);
    CHECK(tool({"run", golden("nemotron-moe"), "-p", "x", "--think", "on", "--raw"}).exit_code ==
          2);
  }

  TEST_CASE("run --json separates the thought from the answer; a pipe gets the answer alone") {
    for (const Thinker& thinker : thinkers) {
      CAPTURE(thinker.name);
      const std::vector<std::string> words = {"run", golden(thinker.name), "-p", "x", "-n", "9"};
      const Json message = message_of(words, thought_script(thinker));
      CHECK(to_text(message) == R"({"role":"assistant","content":"B","reasoning_content":"A"})");
      const ToolResult piped = tool(words, thought_script(thinker));
      CHECK(piped.out == "B\n");
      CHECK(piped.err.empty());
      std::vector<std::string> showing = words;
      showing.insert(showing.end(), {"--thoughts", "show"});
      CHECK(tool(showing, thought_script(thinker)).out == "<think>\nA</think>B\n");
      const ToolResult unfinished = tool(words, script({thinker.a, thinker.b, thinker.answer_end}));
      CHECK(unfinished.exit_code == 0);
      CHECK(unfinished.out == "\n");
      CHECK(contains(unfinished.err, "the answer is empty: it ended within its thought"));
      const Json cut = message_of(words, script({thinker.a, thinker.b, thinker.answer_end}));
      CHECK(to_text(cut) == R"({"role":"assistant","content":"","reasoning_content":"AB"})");
      std::vector<std::string> off = script({thinker.b, thinker.answer_end});
      off.insert(off.end(), {"--think", "off"});
      CHECK(to_text(message_of(words, off)) == R"({"role":"assistant","content":"B"})");
    }
    // Here nothing opens a thought, and the model begins one itself: 281 and 282 are its markers.
    const std::vector<std::string> words = {"run", golden("qwen3-next-odd"), "-p", "x", "-n", "9"};
    CHECK(to_text(message_of(words, script({281, 32, 282, 33, 278}))) ==
          R"({"role":"assistant","content":"B","reasoning_content":"A"})");
    CHECK(tool(words, script({281, 32, 282, 33, 278})).out == "B\n");
    std::vector<std::string> whole = words;
    whole.insert(whole.end(), {"--thoughts", "show"});
    CHECK(tool(whole, script({281, 32, 282, 33, 278})).out == "<think>A</think>B\n");
    std::vector<std::string> continued = words;
    continued.push_back("--raw");
    CHECK(tool(continued, script({281, 32, 282, 33, 278})).out == "<think>A</think>B\n");
    for (const char* other : {"--raw", "--json"}) {
      std::vector<std::string> refused = whole;
      refused.emplace_back(other);
      CHECK(tool(refused).exit_code == 2);
    }
    std::vector<std::string> raw = words;
    raw.insert(raw.end(), {"--raw", "--json"});
    const ToolResult plain = tool(raw, script({281, 32, 282, 33, 278}));
    CHECK(parse_json(plain.out, "stdout")["choices"][0]["text"] == "<think>A</think>B");
  }

  TEST_CASE("a stop string ends the answer, not the thought; plain text has no thought") {
    for (const Thinker& thinker : thinkers) {
      CAPTURE(thinker.name);
      const std::vector<std::string> words = {"run", golden(thinker.name), "-p", "x", "-n", "9"};
      const auto stopped = [&](const std::string& stop) {
        std::vector<std::string> more = thought_script(thinker);
        more.insert(more.end(), {"--stop", stop});
        return to_text(message_of(words, more));
      };
      const char* whole = R"({"role":"assistant","content":"B","reasoning_content":"A"})";
      const char* thought = R"({"role":"assistant","content":"","reasoning_content":"A"})";
      CHECK(stopped("A") == whole);
      CHECK(stopped("</think>B") == thought);  // the end of a thought is meant
      CHECK(stopped("B") == thought);
      CHECK(stopped(">B") == whole);
      CHECK(stopped("<|end|>") == whole);  // with headers it ends every message
      std::vector<std::string> more = thought_script(thinker);
      more.insert(more.end(), {"--stop", "A"});
      CHECK(tool({"chat", golden(thinker.name), "-n", "9"}, more, "x\n").out == "B\n");
      const TemporaryFolder folder;
      const std::string in = folder.write("in", R"({"prompt":"x","stop":"A"})").string();
      const auto batch = [&](const std::vector<std::string>& flags) {
        std::vector<std::string> line = {"batch", golden(thinker.name), in, "-n", "9", "-o", "-"};
        line.insert(line.end(), flags.begin(), flags.end());
        const ToolResult result = tool(line, thought_script(thinker));
        const Json body = parse_json(result.out, "result")["response"]["body"];
        return to_text(body["choices"][0]["message"]["content"]);
      };
      CHECK(batch({}) == R"("B")");
      CHECK(batch({"--raw"}) == R"("")");
    }
  }

  TEST_CASE("a terminal shows the thought dimmed, and no colour where none is wanted") {
    const Thinker& thinker = thinkers[0];
    std::string line = std::string(HYB_BINARY) + " run " + golden(thinker.name) + " -p x -n 9";
    for (const std::string& word : thought_script(thinker)) line += " " + word;
    const auto shown = [&](const std::string& variable, const std::string& more = "") {
      return run_tool({.arguments = {"-qec", variable + " " + line + more, "/dev/null"},
                       .environment = {{"TERM", "xterm"}},
                       .program = "script"})
          .out;
    };
    CHECK(shown("") == "\x1b[2mA</think>\x1b[mB\r\n");
    CHECK(shown("NO_COLOR=1") == "A</think>B\r\n");
    CHECK(shown("", " --thoughts hide") == "B\r\n");
  }

  TEST_CASE("batch: thoughts beside answers; a line's own word counts for more than the flag") {
    const Thinker& thinker = thinkers[1];
    const TemporaryFolder folder;
    const std::string in = folder
                               .write("in",
                                      R"({"id":"plain","prompt":"x"}
{"id":"off","prompt":"x","chat_template_kwargs":{"enable_thinking":false}}
{"id":"on","prompt":"x","chat_template_kwargs":{"enable_thinking":true}}
)")
                               .string();
    const auto run = [&](const char* name, const std::vector<std::string>& more) {
      const std::string out = (folder.path() / name).string();
      std::vector<std::string> words = {"batch", golden(thinker.name), in, "-o", out, "-n", "9"};
      words.insert(words.end(), more.begin(), more.end());
      CHECK(tool(words, thought_script(thinker)).exit_code == 0);
      std::map<std::string, std::string> messages;
      std::istringstream lines(content(out));
      for (std::string line; std::getline(lines, line);) {
        const Json result = parse_json(line, "result");
        messages[result["custom_id"]] =
            to_text(result["response"]["body"]["choices"][0]["message"]);
      }
      return messages;
    };
    const std::string thought = R"({"role":"assistant","content":"B","reasoning_content":"A"})";
    const std::string none = R"({"role":"assistant","content":"A</think>B"})";
    using Messages = std::map<std::string, std::string>;
    CHECK(run("default", {}) == Messages{{"plain", thought}, {"off", none}, {"on", thought}});
    CHECK(run("off", {"--think", "off"}) ==
          Messages{{"plain", none}, {"off", none}, {"on", thought}});
    // A rerun with another word is another job.
    const std::string out = (folder.path() / "off").string();
    CHECK(tool({"batch", golden(thinker.name), in, "-o", out, "-n", "9", "--think", "on"},
               thought_script(thinker))
              .exit_code == 2);
    CHECK(tool({"batch", golden("lfm2-dense"), in, "-o", out + "2", "--think", "on"}).exit_code ==
          2);
  }

  TEST_CASE("the next turn's prompt has past thoughts as the template wants them") {
    for (const Thinker& thinker : thinkers) {
      CAPTURE(thinker.name);
      const std::string model = golden(thinker.name);
      const TemporaryFolder folder;
      const auto render = [&](const char* messages) {
        const std::string file = folder.write("messages", messages).string();
        return ids_of(tool({"render", model, "--messages", file, "--tokens"}));
      };
      const auto second = render(
          R"([{"role":"user","content":"x"},
              {"role":"assistant","content":"B","reasoning_content":"A"},
              {"role":"user","content":"y"}])");
      const auto first = render(R"([{"role":"user","content":"x"}])");
      const auto common = static_cast<std::size_t>(
          std::mismatch(first.begin(), first.end(), second.begin(), second.end()).first -
          first.begin());
      const ToolResult result =
          tool({"chat", model, "-n", "9"}, thought_script(thinker), "x\ny\n/stats\n");
      CHECK(result.exit_code == 0);
      CHECK(result.out == "B\nB\n");
      CAPTURE(result.err);
      CHECK(contains(result.err, "prompt               " + std::to_string(second.size()) + " tok"));
      // All that the template lets stay is reused, up to the thought that the first prompt began.
      CHECK(common > first.size() - 4);
      CHECK(contains(result.err, "(" + std::to_string(common) + " reused, "));
    }
  }

  TEST_CASE("/think in a chat: for the answers to come") {
    const Thinker& thinker = thinkers[0];
    const auto chat = [&](const std::string& input) {
      return tool({"chat", golden(thinker.name), "-n", "9"}, thought_script(thinker), input);
    };
    const ToolResult switched = chat("/think\n/think off\nx\n/think default\n/stats\n");
    CHECK(switched.exit_code == 0);
    CHECK(contains(switched.err, "think: default\nthink: off\nthink: default\n"));
    const std::string off = std::to_string(
        ids_of(tool({"render", golden(thinker.name), "-p", "x", "--tokens", "--think", "off"}))
            .size());
    CHECK(contains(switched.err, "prompt               " + off + " tokens"));
    const ToolResult wrong = chat("/think perhaps\nx\n");
    CHECK(wrong.exit_code == 2);
    CHECK(contains(wrong.err, "/think: on, off or default"));
    const ToolResult none = tool({"chat", golden("lfm2-dense"), "-n", "2"}, {}, "/think on\n");
    CHECK(none.exit_code == 2);
    CHECK(contains(none.err, "/think: the model's chat template reads neither"));
  }

  TEST_CASE("a thinking chat that was saved goes on with the same prompt") {
    const Thinker& thinker = thinkers[0];
    const TemporaryFolder home;
    const auto chat = [&](const std::string& input) {
      std::vector<std::string> words = {"chat", golden(thinker.name), "-n", "9", "--session", "s"};
      const auto more = thought_script(thinker);
      words.insert(words.end(), more.begin(), more.end());
      return run_tool({.arguments = words,
                       .input = input,
                       .environment = {{"XDG_DATA_HOME", home.path().string()}}});
    };
    const auto prompt = [](const ToolResult& result) {
      const std::size_t at = result.err.find("prompt   ");
      REQUIRE(at != std::string::npos);
      return result.err.substr(at, result.err.find(" tok", at) - at);
    };
    const ToolResult first = chat("x\n");
    CHECK(first.exit_code == 0);
    const ToolResult second = chat("y\n/stats\n");
    const ToolResult whole =
        tool({"chat", golden(thinker.name), "-n", "9"}, thought_script(thinker), "x\ny\n/stats\n");
    CHECK(prompt(second) == prompt(whole));
  }

  TEST_CASE("a continued chat thinks like its last turn") {
    const TemporaryFolder home;
    const auto chat = [&](const std::string& input, const std::vector<std::string>& more = {}) {
      std::vector<std::string> words = {"chat", golden("nemotron-moe"), "-n", "4", "--session",
                                        "s"};
      words.insert(words.end(), more.begin(), more.end());
      return run_tool({.arguments = words,
                       .input = input,
                       .environment = {{"XDG_DATA_HOME", home.path().string()}}});
    };
    CHECK(chat("/think off\nx\n").exit_code == 0);
    CHECK(contains(chat("/think\n").err, "think: off\n"));
    CHECK(contains(chat("/think\ny\n", {"--think", "on"}).err, "think: on\n"));
    CHECK(contains(chat("/think\n/undo\n").err, "think: on\n"));
    CHECK(contains(chat("/think\n").err, "think: off\n"));  // the turn that /undo went back to
  }

  TEST_CASE("batch --raw --think: for the lines that are chats; refused where none can be") {
    const Thinker& thinker = thinkers[0];
    const TemporaryFolder folder;
    const std::string out = (folder.path() / "out").string();
    const std::string chats = folder
                                  .write("chats", R"({"id":"raw","prompt":"x"}
{"id":"chat","messages":[{"role":"user","content":"x"}]}
)")
                                  .string();
    CHECK(tool({"batch", golden(thinker.name), chats, "-o", out, "-n", "9", "--raw", "--think",
                "off"},
               thought_script(thinker))
              .exit_code == 0);
    CHECK(contains(content(out), R"("content":"A</think>B")"));
    CHECK(!contains(content(out), "reasoning_content"));  // no thought was begun
    const std::string texts = folder.write("texts", "x\n").string();
    const ToolResult refused =
        tool({"batch", golden(thinker.name), texts, "--validate", "--raw", "--think", "off"});
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "--think needs a chat"));
  }

  TEST_CASE("render --messages is independent, and takes or leaves the thinking option") {
    const TemporaryFolder folder;
    const auto file = [&](const char* name, const std::string& more) {
      return folder.write(name, R"({"messages":[{"role":"user","content":"x"}])" + more + "}")
          .string();
    };
    const std::string plain = file("plain", "");
    const std::string wrapped =
        file("wrapped", R"(,"chat_template_kwargs":{"enable_thinking":true})");
    const std::string direct = file("direct", R"(,"enable_thinking":true)");
    const auto render = [&](const std::string& messages, const std::vector<std::string>& more) {
      return tool({"render", golden("nemotron-moe"), "--messages", messages}, more);
    };
    CHECK(render(plain, {"--think", "off"}).out.ends_with("<think></think>"));
    CHECK(render(wrapped, {}).exit_code == 0);
    for (const std::string& saying : {wrapped, direct}) {
      const ToolResult refused = render(saying, {"--think", "off"});
      CHECK(refused.exit_code == 2);
      CHECK(contains(refused.err, "sets it, too"));
    }
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"--system", "s"}, {"-p", "x"}, {"--prompt-file", plain}}) {
      CHECK(render(plain, more).exit_code == 2);
    }
  }

  TEST_CASE("inspect names what the template does about thoughts and tools") {
    const auto line = [](const char* name) {
      const std::string out = tool({"inspect", golden(name)}).out;
      const std::size_t at = out.find("chat template");
      return out.substr(at, out.find('\n', at) - at);
    };
    CHECK(contains(line("nemotron-moe"), "thinking: on by default, --think on|off, takes tools"));
    CHECK(contains(line("qwen3_5-text"), "thinking: on by default, --think on|off, takes tools"));
    CHECK(contains(line("nemotron-dense"), "thinking: always, takes tools"));
    CHECK(contains(line("lfm2-dense"), "thinking: none, takes tools"));
    CHECK(contains(line("qwen3-next-odd"), "thinking: none, takes no tools"));
    CHECK(contains(line("bamba-1"), "none"));
    const Json json = parse_json(tool({"inspect", golden("qwen3_5-text"), "--json"}).out, "stdout");
    CHECK(json["thinking"] == "on");
    CHECK(json["obeys_think"] == true);
    CHECK(json["takes_tools"] == true);
  }
}
