#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/io/file.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_sessions_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::string fixture = HYB_TESTS_DIR "/golden/granite-dense-nope";

/// A home whose chats are with the fixture.
struct FixtureHome : Home {
  ToolResult chat(const std::string& input, const std::vector<std::string>& more = {}) const {
    return Home::chat(fixture, input, more);
  }
};

}  // namespace

TEST_SUITE("app/surface_sessions") {
  TEST_CASE("a chat that was saved goes on as if it had not been left") {
    const FixtureHome home;
    const std::string whole = home.chat("a\nb\nc\n").out;
    CHECK(home.hyb({"sessions"}).out == "no sessions\n");  // a script's chat is not kept unasked
    const std::string begin = home.chat("a\nb\n", {"--session", "s"}).out;
    const ToolResult rest = home.chat("c\n", {"--session", "s"});
    CHECK(rest.exit_code == 0);
    CHECK(rest.err.empty());
    CHECK(begin + rest.out == whole);
    CHECK(home.chat("/load s\n/undo\nc\n").out == rest.out);
    const ToolResult saved = home.chat("a\nx\n/fork f\ny\n/save t\n/edit 2 b\n/goto main\nb\n");
    CHECK(saved.exit_code == 0);
    const ToolResult forked = home.chat("/goto f\nc\n/sessions\n", {"--session", "t"});
    CHECK(forked.out == rest.out);
    CHECK(contains(forked.err, "session"));
  }

  TEST_CASE("a chat that goes on draws no answer again with a seed it had before") {
    const FixtureHome home;
    const std::vector<std::string> drawn = {"--temperature", "2", "--seed", "5"};
    const auto saved_as = [&](const std::string& name) {
      std::vector<std::string> all = drawn;
      all.insert(all.end(), {"--session", name});
      return all;
    };
    const std::string whole = home.chat("a\nb\n/regen\n/goto 1\n/regen\n/regen\n", drawn).out;
    for (const std::string name : {"s", "t"}) {
      const std::string begin = home.chat("a\nb\n/regen\n", saved_as(name)).out;
      const ToolResult rest = name == "s" ? home.chat("/goto 1\n/regen\n/regen\n", saved_as(name))
                                          : home.chat("/load t\n/goto 1\n/regen\n/regen\n", drawn);
      CHECK(begin + rest.out == whole);
    }
  }

  TEST_CASE("list, show and rm") {
    const FixtureHome home;
    home.chat("hello\nonce more\n", {"--session", "s"});
    const ToolResult listed = home.hyb({"sessions", "list"});
    CHECK(listed.exit_code == 0);
    CHECK(contains(listed.out, "session s, "));  // one is no table
    std::istringstream narrow(
        run_tool({.arguments = {"sessions"},
                  .environment = {{"XDG_DATA_HOME", home.folder.path()}, {"COLUMNS", "60"}}})
            .out);
    for (std::string line; std::getline(narrow, line);) {
      const bool is_path = contains(line, fixture);  // a cell is never cut
      CHECK((line.size() <= 60 || is_path));
    }
    const Json json = parse_json(home.hyb({"sessions", "--json"}).out, "list");
    REQUIRE(json.size() == 1);
    CHECK(json[0]["name"] == "s");
    CHECK(json[0]["turns"] == 2);
    const ToolResult shown = home.hyb({"sessions", "show", "s"});
    CHECK(shown.out.starts_with("user: hello\n\nassistant: "));
    CHECK(contains(shown.out, "user: once more\n"));
    home.chat("seven words that go beyond the edge\n", {"--session", "t"});
    const ToolResult wrapped = run_tool(
        {.arguments = {"-qec", "stty cols 30; " HYB_BINARY " sessions show t", "/dev/null"},
         .environment = {{"XDG_DATA_HOME", home.folder.path()}},
         .program = "script"});
    CHECK(contains(wrapped.out, "user: seven words that go\r\nbeyond the edge\r\n"));
    CHECK(home.hyb({"sessions", "rm", "s", "nosuch"}).exit_code != 0);
    CHECK(home.hyb({"sessions", "show", "s"}).exit_code == 0);  // all or none
    CHECK(home.hyb({"sessions", "rename", "s", "t", "--force"}).exit_code == 2);
    CHECK(home.hyb({"sessions", "rm", "s", "t"}).exit_code == 0);
    CHECK(home.hyb({"sessions"}).out == "no sessions\n");
    CHECK(home.hyb({"sessions", "rm", "s"}).exit_code == 2);
    CHECK(contains(home.hyb({"chat", "--continue"}).err, "none is saved yet; hyb chat --session"));
    CHECK(home.hyb({"sessions", "show", "s"}).exit_code == 2);
    CHECK(home.hyb({"sessions", "show"}).exit_code == 2);
    CHECK(home.hyb({"sessions", "show", "../s"}).exit_code == 2);
  }

  TEST_CASE("a damaged session is refused and left alone; one of another model is run again") {
    const FixtureHome home;
    home.chat("a\n", {"--session", "s"});
    const std::string path = (home.folder.path() / "hyb/sessions/s.session").string();
    const ToolResult other = home.hyb({"chat", "demo", "-n", "4", "--session", "s"}, "b\n");
    CHECK(other.exit_code == 0);
    CHECK(contains(other.err, " again"));
    // A damaged text is another matter.
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(200) << '\x7f';
    const ToolResult damaged = home.chat("b\n", {"--session", "s"});
    CHECK(damaged.exit_code == 3);
    CHECK(contains(damaged.err, path));
    CHECK(contains(damaged.err, "hyb sessions rm s"));
    CHECK(damaged.out.empty());
    const ToolResult loaded = home.chat("/load s\nb\n");
    CHECK(loaded.exit_code == 3);
    CHECK_FALSE(loaded.out.empty());
    CHECK(home.hyb({"sessions", "rm", "s"}).exit_code == 0);
    CHECK(home.chat("b\n", {"--session", "s"}).exit_code == 0);
  }

  TEST_CASE("memory that was torn off is run again, and the file is repaired") {
    const FixtureHome home;
    const std::string whole = home.chat("a\nb\nc\n").out;
    const std::string begin = home.chat("a\n", {"--session", "s"}).out;
    const std::string path = (home.folder.path() / "hyb/sessions/s.session").string();
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
    const ToolResult cut = home.chat("b\n", {"--session", "s"});
    CHECK(cut.exit_code == 0);
    CHECK(cut.err.empty());  // what was torn is not there
    const ToolResult good = home.chat("c\n", {"--session", "s"});
    CHECK(good.err.empty());
    CHECK(begin + cut.out + good.out == whole);
  }

  TEST_CASE("a chat that is killed keeps every turn that was answered") {
    const FixtureHome home;
    const ToolResult killed =
        run_shell("(printf 'a\\nb\\n'; sleep 3; printf 'c\\n') | XDG_DATA_HOME=" +
                  home.folder.path().string() + " timeout -s KILL 2 $HYB chat " + fixture +
                  " -n 8 --session s");
    CHECK(killed.exit_code != 0);
    const std::string whole = home.chat("a\nb\nc\n").out;
    CHECK(whole.starts_with(killed.out));
    CHECK(killed.out + home.chat("c\n", {"--session", "s"}).out == whole);
  }

  TEST_CASE("a session brings its model, and is written after a turn only") {
    const FixtureHome home;
    home.chat("a\n", {"--session", "s"});
    const std::string path = (home.folder.path() / "hyb/sessions/s.session").string();
    const std::string saved = content(path);
    CHECK(home.hyb({"chat", "demo", "--session", "s"}, "").exit_code == 0);
    CHECK(home.hyb({"chat", "demo", "--session", "s"}, "/undo\n").exit_code == 0);
    CHECK(home.hyb({"chat", "--session", "s"}, "/stats\n").exit_code == 0);
    CHECK(content(path) == saved);
    const std::string whole = home.chat("a\nb\n").out;
    const ToolResult rest = home.hyb({"chat", "-n", "8", "--session", "s"}, "b\n");
    CHECK(rest.err.empty());
    CHECK(whole.ends_with(rest.out));
    CHECK(parse_json(home.hyb({"sessions", "--json"}).out, "list")[0]["model"] == fixture);
    // A place in the tree is a change, too.
    CHECK(home.chat("/undo 2\n", {"--session", "s"}).exit_code == 0);
    CHECK(home.hyb({"sessions", "show", "s"}).out.empty());
    CHECK(home.chat("/goto 2\n", {"--session", "s"}).exit_code == 0);
    CHECK(contains(home.hyb({"sessions", "show", "s"}).out, "user: b\n"));
    const ToolResult none = home.hyb({"chat", "--continue"}, "");
    CHECK(none.exit_code == 2);
    CHECK(contains(none.err, "there is no session 'last'"));
  }

  TEST_CASE("without room for memory the text is kept and run again") {
    const FixtureHome home;
    const std::string whole = home.chat("a\nb\nc\n").out;
    const std::string begin = home.chat("a\nb\n", {"--session", "s", "--session-size", "100B"}).out;
    const std::string path = (home.folder.path() / "hyb/sessions/s.session").string();
    CHECK(std::filesystem::file_size(path) < 6000);
    const ToolResult rest = home.chat("c\n", {"--session", "s"});
    CHECK(rest.err.empty());
    CHECK(begin + rest.out == whole);
    CHECK(home.chat("a\n", {"--session-size", "0"}).exit_code == 0);
    for (const char* bad : {"much", "20%", "auto", "-1"}) {
      const ToolResult refused = home.chat("", {"--session-size", bad});
      CHECK(refused.exit_code == 2);
      CHECK(contains(refused.err, "is not a size like 64MiB, and not 0"));
    }
  }

  TEST_CASE("a name that is none has the nearest beside it; a session is renamed and exported") {
    const FixtureHome home;
    home.chat("hello\n", {"--session", "story"});
    const std::string nearest = "there is no session 'stori'; the nearest is 'story'";
    CHECK(contains(home.hyb({"sessions", "show", "stori"}).err, nearest));
    CHECK(contains(home.hyb({"sessions", "rm", "stori"}).err, nearest));
    CHECK(contains(home.chat("/load stori\n").err, nearest));
    CHECK(home.hyb({"sessions", "rename", "story", "tale"}).exit_code == 0);
    CHECK(home.hyb({"sessions", "rename", "story", "other"}).exit_code == 2);
    CHECK(home.hyb({"sessions", "rename", "tale", "../x"}).exit_code == 2);
    home.chat("hello\n", {"--session", "story"});
    CHECK(home.hyb({"sessions", "rename", "story", "tale"}).exit_code == 2);
    CHECK(home.hyb({"sessions", "rename", "tale"}).exit_code == 2);
    const ToolResult shown = home.hyb({"sessions", "show", "tale", "--json"});
    const Json body = parse_json(shown.out, "body");
    REQUIRE(body["messages"].size() == 2);
    CHECK(body["messages"][0]["content"] == "hello");
    CHECK(body["messages"][1]["role"] == "assistant");
    const std::string file = home.folder.write("body.json", shown.out).string();
    CHECK(home.hyb({"run", fixture, "-n", "4", "--messages", file}).exit_code == 0);
    CHECK(parse_json(home.hyb({"sessions", "export", "tale", "--json"}).out, "body") == body);
    const std::string target = home.folder.path() / "tale.md";
    CHECK(home.hyb({"sessions", "export", "tale", target}).exit_code == 0);
    const std::string markdown = home.hyb({"sessions", "export", "tale"}).out;
    CHECK(contains(markdown, "# Chat\n\n## user\n\nhello\n\n## assistant\n\n"));
    CHECK(read_text_file(target, 4096) == markdown);
    const ToolResult again = home.hyb({"sessions", "export", "story", target});
    CHECK(again.exit_code == 2);
    CHECK(contains(again.err, target + ": is there already; --force replaces it"));
    CHECK(home.hyb({"sessions", "export", "story", target, "--force"}).exit_code == 0);
    CHECK(contains(home.hyb({"sessions", "export", "stori"}).err, nearest));
  }

  TEST_CASE("chats that are killed at any moment lose no turn") {
    const ToolResult result =
        run_tool({.arguments = {HYB_TESTS_DIR "/../scripts/fuzz/kill_chats.py", HYB_BINARY, "demo",
                                "--kills", "8"},
                  .program = "python3",
                  .time_max = std::chrono::seconds(900)});
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(contains(result.out, "8 kills of "));
  }
}

}  // namespace surface_sessions_test
