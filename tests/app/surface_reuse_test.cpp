#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_reuse_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// A home in which chats with the demo model are kept.
struct DemoHome {
  ToolResult chat(const std::string& input, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"chat", "-n", "8", "--audit", "--pool-memory", "32MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool({.arguments = std::move(arguments),
                     .input = input,
                     .environment = {{"XDG_DATA_HOME", folder.path().string()}}});
  }

  TemporaryFolder folder;
};

/// What each /stats said of its answer: tokens of the prompt that were reused and prefilled, and
/// tokens generated.
struct Reuse {
  int reused, prefilled, generated;
  int all() const { return reused + prefilled + generated; }
};

std::vector<Reuse> reuses(const std::string& err) {
  const std::regex pattern(
      R"(\((\d+) reused, (\d+) prefilled\)\n[^\n]*\n *generated +(\d+) token)");
  std::vector<Reuse> found;
  for (auto it = std::sregex_iterator(err.begin(), err.end(), pattern);
       it != std::sregex_iterator(); ++it) {
    found.push_back({std::stoi((*it)[1]), std::stoi((*it)[2]), std::stoi((*it)[3])});
  }
  return found;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

const std::string question = "The red box holds a coin. The blue bag holds a key. ";

}  // namespace

TEST_SUITE("app/surface_reuse") {
  TEST_CASE("of earlier answers at most one token is run again, of earlier messages none") {
    const DemoHome home;
    const ToolResult talk =
        home.chat(question + "What is in the blue bag?\n/stats\n" +
                  "What is in the red box?\n/stats\n/set seed 7\n/regen\n/stats\n" +
                  "/undo\nWhat is in the red box?\n/stats\n/edit 2 Is it?\n/stats\n" +
                  "/goto 1\nAnd?\n/stats\n/goto 2\n/set seed 7\n/regen\n/stats\n" +
                  "/undo 2\nWho?\n/stats\n/goto 6\nSo?\n/stats\n/regen 2\n/stats\n");
    CHECK(talk.exit_code == 0);
    const auto found = reuses(talk.err);
    REQUIRE(found.size() == 10);
    CHECK(found[0].reused == 0);
    // The last token of an answer was drawn and not run.
    CHECK(found[1].reused >= found[0].all() - 1);
    CHECK(found[2].prefilled == 1);  // /regen
    CHECK(found[2].all() == found[1].all());
    CHECK(found[3].prefilled == 1);                // /undo, and the same again
    CHECK(found[4].reused >= found[0].all() - 1);  // /edit: up to the message
    CHECK(found[5].reused >= found[0].all() - 1);  // /goto
    CHECK(found[6].prefilled == 1);
    CHECK(found[7].prefilled < found[0].prefilled);  // all but the message lasts
    CHECK(found[8].reused >= found[5].all() - 1);
    CHECK(found[9].prefilled == 1);
  }

  TEST_CASE("what is remembered changes no answer") {
    const DemoHome home;
    const std::string talk = question +
                             "What is in the blue bag?\nAnd the box?\n/set seed 7\n/regen\n" +
                             "/fork\n/edit 1 Where is the coin?\n/goto 2\nAnd the coin?\n" +
                             "/goto main\n/undo 2\nWho is there?\n";
    const std::string on = home.chat(talk).out;
    CHECK(home.chat(talk, {"--prefix-cache", "off"}).out == on);
    CHECK(home.chat(talk, {"--history", "preserve"}).out == on);
    CHECK(home.chat(talk, {"--threads", "1", "--context", "256"}).out == on);
    const ToolResult off = home.chat("Hello\n/stats\nAgain\n/stats\n", {"--prefix-cache", "off"});
    for (const Reuse& reuse : reuses(off.err)) CHECK(reuse.reused == 0);
    CHECK(contains(off.err, "off"));
  }

  TEST_CASE("a chat that goes on has the memory of its last turn and of the turn before") {
    const DemoHome home;
    const std::string first = question + "What is in the blue bag?\nWhat is in the red box?\n" +
                              "/set seed 7\n/regen\n/edit 2 Is it?\n/fork f\n/goto 1\nAnd?\n";
    const std::string asked =
        "So?\n/stats\n/set seed 8\n/regen\n/stats\n/goto 2\n/set seed 9\n/regen\n/stats\n" +
        std::string("/goto 3\nYes?\n/stats\n/goto main\n/undo 2\nHm?\n/stats\n");
    const ToolResult whole = home.chat(first + "/mem\n" + asked);
    home.chat(first, {"--session", "s"});
    const ToolResult rest = home.chat("/checkpoints\n/mem\n" + asked, {"--session", "s"});
    CHECK(rest.exit_code == 0);
    CHECK(whole.out.ends_with(rest.out));
    const auto before = reuses(whole.err), after = reuses(rest.err);
    REQUIRE(before.size() == 5);
    REQUIRE(after.size() == before.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      CAPTURE(i);
      CHECK(after[i].all() == before[i].all());
      CHECK(after[i].reused <= before[i].reused);
    }
    CHECK(after[0].reused == before[0].reused);
    CHECK(after[1].prefilled == 1);
    const std::regex pattern(R"(prefix tree: (\d+) snapshots)");
    std::smatch had, has;
    REQUIRE(std::regex_search(whole.err, had, pattern));
    REQUIRE(std::regex_search(rest.err, has, pattern));
    CHECK(std::stoi(had[1]) > 6);
    CHECK(has[1] == "2");
  }

  TEST_CASE("a chat that is killed has its memory as of the last answer") {
    const DemoHome home;
    const std::string input = question + "What is in the blue bag?\n";
    const ToolResult killed =
        run_shell("(cat; sleep 5) | XDG_DATA_HOME=" + home.folder.path().string() +
                      " timeout -s KILL 3 $HYB chat -n 8 --session s",
                  input);
    CHECK(killed.exit_code != 0);
    const ToolResult whole = home.chat(input + "And?\n/stats\n");
    const ToolResult rest = home.chat("And?\n/stats\n", {"--session", "s"});
    CHECK(killed.out + rest.out == whole.out);
    REQUIRE(reuses(rest.err).size() == 1);
    CHECK(reuses(rest.err)[0].reused == reuses(whole.err)[0].reused);
  }

  TEST_CASE("an answer from an int8 snapshot says so, in chat, batch and replay") {
    const DemoHome home;
    const std::string talk = question +
                             "What is in the blue bag?\n/stats\n/set seed 7\n/regen\n/stats\n" +
                             "/undo\nWhat is in the red box?\n/stats\n";
    const ToolResult exact = home.chat(talk), int8 = home.chat(talk, {"--snapshots", "int8"});
    CHECK(exact.exit_code == 0);
    CHECK(int8.exit_code == 0);
    CHECK_FALSE(contains(exact.err, "int8"));
    const std::size_t answers = reuses(int8.err).size();
    REQUIRE(answers == 3);
    CHECK(count_of(int8.err, "from an int8 snapshot\n") == answers - 1);  // not the first
    CHECK(int8.out.substr(0, int8.out.find('\n')) == exact.out.substr(0, exact.out.find('\n')));

    const std::string line = "{\"messages\":[{\"role\":\"user\",\"content\":\"" + question +
                             "What is in the red box?\"}]}\n";
    const std::string in = home.folder.write("in", line + line + line).string();
    const std::string out = (home.folder.path() / "out").string();
    const ToolResult batch = run_tool({.arguments = {"batch", in, "-o", out, "--snapshots", "int8",
                                                     "--parallel", "1", "-n", "8"}});
    CHECK(batch.exit_code == 0);
    CHECK(contains(batch.err, "; 2 answers from int8 snapshots\n"));
    CHECK(count_of(content(out), "\"reused_precision\":\"int8\"") == 2);
    const Json last = parse_json(content(out + ".job"), "job")["last_run"];
    CHECK(last["from_int8_snapshots"] == 2);

    const std::string trace = (home.folder.path() / "trace").string();
    CHECK(home.chat(talk, {"--snapshots", "int8", "--record", trace}).exit_code == 0);
    const ToolResult replay =
        run_tool({.arguments = {"replay", trace, "--shape", "granite-4.0-h-350m", "--budget", "2GB",
                                "--policy", "gd", "--snapshots", "int8", "--json"}});
    CHECK(replay.exit_code == 0);
    CHECK(parse_json(replay.out, "stdout")[0]["snapshots"] == "int8");
  }

  TEST_CASE("a chat is recorded for replay without its text") {
    const DemoHome home;
    const std::string trace = (home.folder.path() / "trace").string();
    CHECK(home.chat("Hello\nAgain\n", {"--record", trace}).exit_code == 0);
    std::istringstream lines(content(trace));
    int turns = 0;
    for (std::string line; std::getline(lines, line); ++turns) {
      const Json json = parse_json(line, "trace");
      CHECK(json["session"] == "0");
      CHECK(json["turn"] == turns + 1);
    }
    CHECK(turns == 2);
    CHECK(content(trace).starts_with("{\"model\":\"demo\","));
    const ToolResult replay = run_tool({.arguments = {"replay", trace, "--policy", "gd"}});
    CHECK(contains(replay.out, "\ndemo: "));  // the shape is the model's that was recorded
    CHECK(contains(replay.out, " kB"));
    const std::string other =
        home.folder.write("other", "{\"model\":\"/nosuch\"," + content(trace).substr(16)).string();
    const ToolResult unknown = run_tool({.arguments = {"replay", other, "--policy", "gd"}});
    CHECK(unknown.exit_code == 0);
    CHECK(contains(unknown.err, "/nosuch"));
    CHECK(contains(unknown.out, "\nnemotron-3-nano-30b-a3b: "));
    CHECK(home.chat("Hello\n", {"--record", "/nowhere/trace"}).exit_code == 1);
  }

  TEST_CASE("a batch reuses what its lines have in common") {
    const TemporaryFolder folder;
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text += R"({"custom_id":")" + std::to_string(i) +
              R"(","messages":[{"role":"user","content":")" + question +
              (i % 4 < 2 ? "Anna has the hat. " : "Ben took the map. ") + "What is number " +
              std::to_string(i * 37 % 101) + "?\"}]}\n";
    }
    const std::string in = folder.write("in", text).string();
    const auto stats = [&](const std::string& out, std::vector<std::string> more) {
      const std::string path = (folder.path() / out).string();
      std::vector<std::string> arguments = {
          "batch", in, "-o", path, "-n", "4", "--audit", "--pool-memory", "32MiB"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      CHECK(run_tool({.arguments = std::move(arguments)}).exit_code == 0);
      return parse_json(content(path + ".job"), "job")["last_run"];
    };
    for (const char* parallel : {"1", "8"}) {
      CAPTURE(parallel);
      const Json run = stats(std::string("deep") + parallel, {"--parallel", parallel});
      const double tokens = run["prompt_tokens"].get<double>();
      CHECK(run["sharable_tokens"].get<double>() > tokens / 2);
      CHECK(run["reused_tokens"].get<double>() <= run["sharable_tokens"].get<double>());
      CHECK(run["reused_tokens"].get<double>() * 3 >= run["sharable_tokens"].get<double>());
    }
    CHECK(stats("off", {"--prefix-cache", "off"})["reused_tokens"] == 0);
  }
}

}  // namespace surface_reuse_test
