#include <sys/stat.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace hyb::testing {

struct TmuxOptions {
  std::string command;  ///< for a shell
  std::map<std::string, std::string> environment = {};
  int columns = 80;
  int rows = 24;
};

/// A person's terminal: a tmux server of its own with one window, in which a command line runs.
/// After it has ended the window shows "exit code N".
class Tmux {
 public:
  explicit Tmux(const TmuxOptions& options) {
    std::string line = "env -u NO_COLOR -u CLICOLOR_FORCE -u FORCE_COLOR";
    for (const auto& [name, value] : options.environment) line += " " + name + "='" + value + "'";
    // The trap keeps the shell alive when Ctrl-C reaches the whole group of processes.
    line += " sh -c 'trap : INT; " + options.command + "; echo \"exit code $?\"; cat >/dev/null'";
    tmux({"-f", "/dev/null", "new-session", "-d", "-x", std::to_string(options.columns), "-y",
          std::to_string(options.rows), line});
  }
  ~Tmux() { run_tool(tool({"kill-server"})); }
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;

  void type(const std::string& text) { tmux({"send-keys", "-l", "--", text}); }
  void press(const std::string& key) { tmux({"send-keys", key}); }  ///< "Enter", "C-c", "Up", ...
  void enter(const std::string& text) {
    type(text);
    press("Enter");
  }

  /// Pastes as a terminal with bracketed paste does.
  void paste(const std::string& text) {
    Tool load = tool({"load-buffer", "-"});
    load.input = text;
    run_tool(load);
    tmux({"paste-buffer", "-p"});
  }

  void resize(int columns, int rows) {
    tmux({"resize-window", "-x", std::to_string(columns), "-y", std::to_string(rows)});
  }

  /// What the window shows, without space at line ends.
  std::string screen() { return tmux({"capture-pane", "-p"}); }

  /// Waits until the window shows `text`; false when it does not within two minutes.
  bool shows(const std::string& text) { return waits_for(text, true); }

  /// Waits until the window does not show it any more.
  bool hides(const std::string& text) { return waits_for(text, false); }

 private:
  bool waits_for(const std::string& text, bool is_there) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (std::chrono::steady_clock::now() < deadline) {
      if ((screen().find(text) != std::string::npos) == is_there) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    return false;
  }

  Tool tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-S", (folder_.path() / "tmux").string()});
    return {.arguments = std::move(arguments), .program = "tmux"};
  }

  std::string tmux(std::vector<std::string> arguments) {
    const ToolResult result = run_tool(tool(std::move(arguments)));
    if (result.exit_code != 0) throw std::runtime_error("tmux: " + result.err);
    return result.out;
  }

  TemporaryFolder folder_;  // holds the server's socket
};

}  // namespace hyb::testing

using namespace hyb::testing;

namespace {

/// hyb chat in a terminal, with a home of its own.
struct Fixture {
  explicit Fixture(const std::string& flags = "-n 8", const std::string& term = "screen",
                   const std::string& editor = "")
      : terminal({.command = std::string(HYB_BINARY) + " chat " + HYB_TESTS_DIR +
                             "/golden/granite-dense-nope " + flags,
                  .environment = {{"HOME", home.path().string()},
                                  {"XDG_STATE_HOME", (home.path() / "state").string()},
                                  {"XDG_DATA_HOME", (home.path() / "data").string()},
                                  {"LC_ALL", "C.UTF-8"},
                                  {"VISUAL", editor},
                                  {"TERM", term}}}) {
    REQUIRE(terminal.shows("Ctrl-D leaves"));
    REQUIRE(terminal.shows("\n>"));
  }

  std::string history() const { return content(home.path() / "state" / "hyb" / "history"); }

  /// Leaves, and expects this exit code.
  void leaves_with(const std::string& key, int code) {
    terminal.press(key);
    CHECK(terminal.shows("exit code " + std::to_string(code)));
  }

  TemporaryFolder home;
  Tmux terminal;
};

const std::string endless = "--ignore-eos --context 1000000";

}  // namespace

TEST_SUITE("app/surface_chat_terminal") {
  TEST_CASE("an answer, its status line, Ctrl-D") {
    Fixture fixture;
    fixture.terminal.enter("hällo 漢字");
    CHECK(fixture.terminal.shows("> hällo 漢字"));
    CHECK(fixture.terminal.shows("8 tokens · first after "));
    CHECK(fixture.terminal.shows("\n\n>"));
    CHECK(fixture.terminal.shows("max_tokens = 8"));
    fixture.terminal.enter("/copy");
    CHECK(fixture.terminal.shows("the answer was sent to the terminal"));
    fixture.leaves_with("C-d", 0);
    CHECK(fixture.history() == "hällo 漢字\n/copy\n");
    struct stat about {};
    REQUIRE(::stat((fixture.home.path() / "state" / "hyb" / "history").c_str(), &about) == 0);
    CHECK((about.st_mode & 0777U) == 0600);
  }

  TEST_CASE("Ctrl-C stops an answer only; the part said stays in the conversation") {
    Fixture fixture(endless);
    fixture.terminal.enter("go");
    CHECK(fixture.terminal.hides("Ctrl-D leaves"));  // the answer has begun and scrolls
    fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("stopped · "));
    CHECK(fixture.terminal.screen().find("exit code") == std::string::npos);
    fixture.terminal.enter("/undo");
    CHECK(fixture.terminal.shows("took back 1 of 1 messages, from: go"));
    fixture.terminal.enter("/undo");
    CHECK(fixture.terminal.shows("this is the beginning"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE(
      "leaving says how to go on, which shows the last exchange; what was stopped is marked") {
    const TemporaryFolder home;
    const std::map<std::string, std::string> environment = {{"HOME", home.path().string()},
                                                            {"XDG_DATA_HOME", home.path().string()},
                                                            {"TERM", "screen"}};
    const std::string chat = std::string(HYB_BINARY) + " chat ";
    Tmux first({.command = chat + HYB_TESTS_DIR + "/golden/granite-dense-nope " + endless,
                .environment = environment});
    REQUIRE(first.shows("\n>"));
    first.enter("go on and on");
    CHECK(first.hides("Ctrl-D leaves"));
    first.press("C-c");
    CHECK(first.shows("stopped · "));
    first.press("C-d");
    CHECK(first.shows("kept until 5 more chats without a name: hyb chat --continue"));
    Tmux second({.command = chat + "--continue -n 8", .environment = environment});
    CHECK(second.shows("> go on and on\n"));
    CHECK(second.shows("hyb sessions show has all]\n[stopped]\n"));
    CHECK(second.shows("branch main, after turn 1"));
    second.press("C-d");
    CHECK(second.shows("exit code 0"));
    const ToolResult shown = run_shell("XDG_DATA_HOME=" + home.path().string() +
                                       " $HYB sessions show last | cut -c1-30");
    CHECK(contains(shown.out, "assistant (stopped): "));
  }

  TEST_CASE("Ctrl-C clears a line; in an empty one it warns, then leaves with 130") {
    Fixture fixture;
    fixture.terminal.type("never mind");
    CHECK(fixture.terminal.shows("> never mind"));
    fixture.terminal.press("C-c");
    CHECK(fixture.terminal.hides("never mind"));
    fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("Ctrl-C again or Ctrl-D leaves"));
    fixture.terminal.enter("/stats");
    CHECK(fixture.terminal.shows("no answer yet"));
    fixture.terminal.enter("/clear");
    CHECK(fixture.terminal.shows("the conversation is empty"));
    fixture.terminal.press("C-c");
    fixture.leaves_with("C-c", 130);
  }

  TEST_CASE("several lines, editing keys and history") {
    Fixture fixture;
    fixture.terminal.enter("one\\");
    CHECK(fixture.terminal.shows("> one\n."));
    fixture.terminal.type("tww");
    fixture.terminal.press("BSpace");
    fixture.terminal.type("o");
    fixture.terminal.press("C-j");
    fixture.terminal.type("hree");
    fixture.terminal.press("Home");
    fixture.terminal.enter("t");
    CHECK(fixture.terminal.shows("> one\n. two\n. three\n"));
    CHECK(fixture.terminal.shows("first after"));
    fixture.terminal.enter("\"\"\"");
    fixture.terminal.enter("/help");
    fixture.terminal.enter("\"\"\"");
    CHECK(fixture.terminal.shows(". /help\n. \"\"\"\n"));
    fixture.terminal.enter("/undo 2");
    CHECK(fixture.terminal.shows("took back 2 of 2 messages, from: one two three"));
    for (int i = 0; i < 3 + 2 + 2; ++i)
      fixture.terminal.press("Up");  // three entries, two of 3 lines
    CHECK(fixture.terminal.shows(
        "messages, from: one two three; /goto 2 brings them back\n> one\n. two\n. three\n"));
    fixture.terminal.press("C-c");
    fixture.leaves_with("C-d", 0);
    CHECK(fixture.history() == "one\\ntwo\\nthree\n\"\"\"\\n/help\\n\"\"\"\n/undo 2\n");
  }

  TEST_CASE("a paste of many lines enters nothing; the window may change its size") {
    Fixture fixture;
    fixture.terminal.paste("first\nsecond\nthird");
    CHECK(fixture.terminal.shows("> first\n. second\n. third\n"));
    CHECK_FALSE(contains(fixture.terminal.screen(), "first after"));
    fixture.terminal.resize(30, 10);
    fixture.terminal.type("!");
    CHECK(fixture.terminal.shows("> first\n. second\n. third!\n"));
    fixture.terminal.resize(100, 24);
    fixture.terminal.press("Enter");
    CHECK(fixture.terminal.shows("first after"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE("a paste of 10 MB is taken in and can be thrown away") {
    Fixture fixture("-n 8 --no-history");
    std::string text;
    while (text.size() < 10'000'000) text += "a line of the paste that goes on and on\n";
    fixture.terminal.paste(text + "end of the paste");
    CHECK(fixture.terminal.shows(". end of the paste"));
    fixture.terminal.press("C-c");
    fixture.terminal.enter("/stats");
    CHECK(fixture.terminal.shows("no answer yet"));
    fixture.leaves_with("C-d", 0);
    CHECK(fixture.history().empty());
  }

  TEST_CASE("keys pressed during an answer wait for the next prompt") {
    Fixture fixture(endless);
    fixture.terminal.enter("go");
    CHECK(fixture.terminal.hides("Ctrl-D leaves"));
    fixture.terminal.enter("/stats");
    fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("stopped"));
    fixture.terminal.enter("/stats");
    CHECK(fixture.terminal.shows("ended by cancelled"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE("a message is edited in place, or unchanged") {
    Fixture fixture;
    fixture.terminal.enter("first one");
    CHECK(fixture.terminal.shows("max_tokens = 8"));
    fixture.terminal.enter("//second");
    CHECK(fixture.terminal.shows("> //second"));
    fixture.terminal.enter("/edit");
    CHECK(fixture.terminal.shows("edit 2> //second"));
    fixture.terminal.press("C-c");
    fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("message 2 stays as it is"));
    fixture.terminal.enter("/edit 1");
    CHECK(fixture.terminal.shows("edit 1> first one"));
    fixture.terminal.enter(" and more");
    CHECK(fixture.terminal.shows("edit 1> first one and more"));
    fixture.terminal.enter("/checkpoints");
    CHECK(fixture.terminal.shows("└─ 3"));
    CHECK(fixture.terminal.shows("*main   first one and more"));
    fixture.terminal.enter("/fork");
    CHECK(fixture.terminal.shows("branch fork-1, after turn 3"));
    fixture.terminal.enter("/goto 2");
    CHECK(fixture.terminal.shows("branch fork-1, after turn 2: /second"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE("Ctrl-C stops the reading of a long message at once, and again is no other request") {
    Fixture fixture("-n 8 --context 400000 -t 1");
    std::string text;
    while (text.size() < 300'000) text += "a line of the message that goes on and on ";
    fixture.terminal.paste(text);
    fixture.terminal.press("Enter");
    CHECK(fixture.terminal.shows("reading "));
    for (int i = 0; i < 3; ++i) fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("stopped before the answer began; /regen answers it"));
    for (const std::string gone : {"reading ", "stopping", "exit code"}) {
      CAPTURE(gone);
      CHECK(fixture.terminal.hides(gone));
    }
    fixture.terminal.enter("/checkpoints");
    CHECK(fixture.terminal.shows("*main   a line of the message"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE("impatient Ctrl-C neither leaves nor loses the turn") {
    Fixture fixture(endless);
    fixture.terminal.enter("go");
    CHECK(fixture.terminal.hides("Ctrl-D leaves"));
    for (int i = 0; i < 3; ++i) fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("stopped · "));
    fixture.terminal.enter("/checkpoints");
    CHECK(fixture.terminal.shows("*main   go"));
    CHECK_FALSE(contains(fixture.terminal.screen(), "exit code"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE("Ctrl-X Ctrl-E opens the line in an editor; one that fails leaves it") {
    Fixture fixture("-n 8", "screen", "sed -i s/tww/two/");
    fixture.terminal.type("one tww");
    fixture.terminal.press("C-x");
    fixture.terminal.press("C-e");
    CHECK(fixture.terminal.shows("> one two\n"));
    fixture.terminal.press("C-c");
    fixture.leaves_with("C-d", 0);
    Fixture failing("-n 8", "screen", "false");
    failing.terminal.type("draft");
    failing.terminal.press("C-x");
    failing.terminal.press("C-e");
    CHECK(failing.terminal.shows("the editor ended with 1"));
    failing.terminal.enter("!");
    CHECK(failing.terminal.shows("> draft!"));
    CHECK(failing.terminal.shows("first after"));
    failing.leaves_with("C-d", 0);
  }

  TEST_CASE("--quiet shows answers, what commands show and errors, nothing else") {
    const TemporaryFolder home;
    Tmux terminal({.command = std::string(HYB_BINARY) + " --quiet chat " + HYB_TESTS_DIR +
                              "/golden/granite-dense-nope -n 3 --no-history",
                   .environment = {{"HOME", home.path().string()}, {"TERM", "screen"}}});
    REQUIRE(terminal.shows(">"));
    terminal.enter("a");
    CHECK(terminal.shows("\n\n>"));
    terminal.enter("/undo 7");
    CHECK(terminal.shows("so N is 1, not 7"));
    for (const char* said : {"leaves", "first after", "max_tokens"}) {
      CAPTURE(said);
      CHECK_FALSE(contains(terminal.screen(), said));
    }
    terminal.press("C-d");
    CHECK(terminal.shows("exit code 0"));
  }

  TEST_CASE("Tab completes commands") {
    Fixture fixture;
    fixture.terminal.type("/stat");
    fixture.terminal.press("Tab");
    fixture.terminal.press("Enter");
    CHECK(fixture.terminal.shows("no answer yet"));
    fixture.terminal.type("/set te");
    fixture.terminal.press("Tab");
    fixture.terminal.enter("0.7");
    CHECK(fixture.terminal.shows("temperature          0.7"));
    fixture.leaves_with("C-d", 0);
  }

  TEST_CASE("the terminal is as before afterwards") {
    const TemporaryFolder home;
    Tmux terminal({.command = "stty -g >" + home.path().string() + "/before; " + HYB_BINARY +
                              " chat " + HYB_TESTS_DIR + "/golden/granite-dense-nope; stty -g >" +
                              home.path().string() + "/after; true",
                   .environment = {{"HOME", home.path().string()}, {"TERM", "screen"}}});
    REQUIRE(terminal.shows("\n>"));
    terminal.press("C-c");
    terminal.press("C-c");
    CHECK(terminal.shows("exit code 0"));
    CHECK_FALSE(content(home.path() / "before").empty());
    CHECK(content(home.path() / "before") == content(home.path() / "after"));
  }

  TEST_CASE("SIGTERM at the prompt ends with 143 and gives the terminal back") {
    Tmux terminal({.command = std::string("timeout --foreground --preserve-status 2 ") +
                              HYB_BINARY + " chat " + HYB_TESTS_DIR +
                              "/golden/granite-dense-nope; echo \"code $?\"; stty -a",
                   .environment = {{"TERM", "screen"}}});
    CHECK(terminal.shows("code 143"));
    CHECK(terminal.shows(" icanon "));
    CHECK(terminal.shows(" echo "));
  }

  TEST_CASE("a simple terminal gets plain lines") {
    Fixture fixture("-n 8", "dumb");
    fixture.terminal.enter("one\\");
    CHECK(fixture.terminal.shows("> one\\\n."));
    fixture.terminal.enter("two");
    CHECK(fixture.terminal.shows("first after"));
    fixture.terminal.press("C-c");
    CHECK(fixture.terminal.shows("Ctrl-C again"));
    fixture.leaves_with("C-d", 0);
    CHECK(fixture.history().empty());
  }

  TEST_CASE("a home that cannot be written costs one warning") {
    const TemporaryFolder home;
    home.write("blocked", "");
    Tmux terminal({.command = std::string(HYB_BINARY) + " chat " + HYB_TESTS_DIR +
                              "/golden/granite-dense-nope -n 3",
                   .environment = {{"XDG_STATE_HOME", (home.path() / "blocked").string()},
                                   {"XDG_DATA_HOME", (home.path() / "data").string()},
                                   {"TERM", "screen"}},
                   .columns = 200});
    CHECK(terminal.shows("warning: history: "));
    terminal.enter("a");
    CHECK(terminal.shows("first after"));
    terminal.press("C-d");
    CHECK(terminal.shows("exit code 0"));
  }
}
