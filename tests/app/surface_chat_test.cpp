#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_chat_test {

using namespace hyb::testing;

namespace {

const std::string fixture = HYB_TESTS_DIR "/golden/granite-dense-nope";

ToolResult chat(const std::string& input, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {"chat", fixture});
  return run_tool({.arguments = std::move(arguments), .input = input});
}

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// The fixture without its chat template.
void copy_without_template(const TemporaryFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(fixture)) {
    const auto name = entry.path().filename();
    if (name == "chat_template.jinja" || name == "tokenizer_config.json") continue;
    std::filesystem::copy_file(entry.path(), folder.path() / name);
  }
}

}  // namespace

TEST_SUITE("app/surface_chat") {
  TEST_CASE("each line of a pipe is a message, stdout has the answers only") {
    const ToolResult result = chat("hello\n\n  \nonce more\n", {"-n", "8"});
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    CHECK(lines(result.out) >= 2);
    CHECK(contains(result.out, "\n"));
    CHECK_FALSE(contains(result.out, "> "));
    // The second answer comes from a conversation: alone it would be another.
    const ToolResult first = chat("hello\n", {"-n", "8"});
    const ToolResult second = chat("once more\n", {"-n", "8"});
    CHECK(result.out.starts_with(first.out));
    CHECK(result.out != first.out + second.out);
    CHECK(chat("hello\n\n  \nonce more", {"-n", "8"}).out == result.out);
    CHECK(chat("hello\r\nonce more\r\n", {"-n", "8"}).out == result.out);
  }

  TEST_CASE("an empty input ends well") {
    const ToolResult result = chat("");
    CHECK(result.exit_code == 0);
    CHECK(result.out.empty());
    CHECK(result.err.empty());
  }

  TEST_CASE("undo and regen bring the same conversation back") {
    const std::string a = chat("a\n", {"-n", "8"}).out;
    const std::string ab = chat("a\nb\n", {"-n", "8"}).out.substr(a.size());
    CHECK(chat("a\nx\n/undo\nb\n", {"-n", "8"}).out.ends_with(ab));
    CHECK(chat("x\ny\n/undo 2\na\nb\n", {"-n", "8"}).out.ends_with(a + ab));
    CHECK(chat("x\n/clear\na\nb\n", {"-n", "8"}).out.ends_with(a + ab));
    // Greedy, so only what the answer depends on can change it.
    const ToolResult same = chat("a\n/regen\nb\n", {"-n", "8"});
    CHECK(same.out == a + ab);
    CHECK(same.exit_code == 2);
    CHECK(contains(same.err, "/set temperature 0.8 lets it vary"));
    CHECK(chat("a\n/set n 9\n/set n 8\n/regen\nb\n", {"-n", "8"}).out == a + ab);
    CHECK(chat("a\n/set n 3\n/regen\n", {"-n", "8"}).exit_code == 0);
    CHECK(chat("a\nb\n/regen 2\nb\n", {"-n", "8"}).out == a + ab + a + ab);
  }

  TEST_CASE("messages are edited, branches grow, and every place can be gone back to") {
    const std::vector<std::string> few = {"-n", "8"};
    const std::string a = chat("a\n", few).out;
    const std::string ab = chat("a\nb\n", few).out.substr(a.size());
    const std::string abc = chat("a\nb\nc\n", few).out.substr(a.size() + ab.size());
    CHECK(chat("a\nx\n/edit 2 b\nc\n", few).out.ends_with(ab + abc));
    CHECK(chat("x\ny\n/edit 1 a\nb\nc\n", few).out.ends_with(a + ab + abc));
    CHECK(chat("a\nb\nx\n/goto 2\nc\n", few).out.ends_with(abc));
    CHECK(chat("a\nb\n/fork side\nx\n/goto main\nc\n", few).out.ends_with(abc));
    CHECK(chat("a\nb\n/undo 2\n/goto 2\nc\n", few).out.ends_with(abc));
    CHECK(chat("x\n/goto 0\na\nb\nc\n", few).out.ends_with(a + ab + abc));
    const ToolResult listed = chat("a\n/fork side\nb\n/goto 1\nc\n/checkpoints\n/mem\n", few);
    CHECK(listed.exit_code == 0);
    for (const char* part : {"main", "*side", "message", "weights", "budget"}) {
      CAPTURE(part);
      CHECK(contains(listed.err, part));
    }
    for (const char* bad : {"/edit", "/edit 2", "/edit 2 x", "/goto 9", "/goto x", "/fork 3",
                            "/undo 2", "/regen 2"}) {
      CAPTURE(bad);
      const ToolResult refused = chat("a\n" + std::string(bad) + "\nb\n", few);
      CHECK(refused.exit_code == 2);
      CHECK(lines(refused.err) == 1);
      CHECK(refused.out == a + ab);
    }
  }

  TEST_CASE("/mem has a line about the disk tier where there is one") {
    const TemporaryFolder folder;
    const ToolResult tiered =
        chat("/mem\n", {"--disk-tier", "8MB", "--disk-tier-folder", folder.path().string()});
    CHECK(tiered.exit_code == 0);
    CHECK(contains(tiered.err, "disk tier: 0 snapshots written, 0 read back, 0 B in use\n"));
    CHECK_FALSE(contains(chat("/mem\n", {}).err, "disk tier"));
  }

  TEST_CASE("history may be kept as it was; where the template changes nothing, it is the same") {
    const std::vector<std::string> few = {"-n", "8"};
    const std::vector<std::string> preserve = {"-n", "8", "--history", "preserve"};
    const std::string talk = "a\nb\n/undo\nc\n/edit 1 d\ne\n";
    CHECK(chat(talk, preserve).out == chat(talk, few).out);
    CHECK(chat("a\n", {"--history", "none"}).exit_code == 2);
  }

  TEST_CASE("regen draws with another seed, and the same run does it again") {
    const std::vector<std::string> hot = {"-n", "12", "--temperature", "3", "--seed", "5"};
    const std::string once = chat("a\n", hot).out;
    const std::string twice = chat("a\n/regen\n", hot).out;
    CHECK(twice.starts_with(once));
    CHECK(twice.substr(once.size()) != once);
    CHECK(chat("a\n/regen\n", hot).out == twice);
  }

  TEST_CASE("settings and the system prompt change answers") {
    const std::string plain = chat("a\n", {"-n", "8"}).out;
    CHECK(chat("/set max_tokens 8\na\n").out == plain);
    CHECK(chat("/system Be brief.\na\n", {"-n", "8"}).out ==
          chat("a\n", {"-n", "8", "--system", "Be brief."}).out);
    CHECK(chat("/system Be brief.\na\n", {"-n", "8"}).out != plain);
    CHECK(chat("/system none\na\n", {"-n", "8", "--system", "Be brief."}).out == plain);
  }

  TEST_CASE("a chat begins with -p") {
    const ToolResult result = chat("b\n", {"-n", "8", "-p", "a"});
    CHECK(result.exit_code == 0);
    CHECK(result.out == chat("a\nb\n", {"-n", "8"}).out);
    CHECK(chat("", {"-n", "8", "--prompt", "/help"}).out == chat("//help\n", {"-n", "8"}).out);
  }

  TEST_CASE("/read begins the next message with a file's text") {
    const TemporaryFolder folder;
    folder.write("notes", "a\n\n");
    folder.write("bad", "a \xff");
    const std::string notes = (folder.path() / "notes").string();
    const std::string both = chat("", {"-n", "8", "-p", "a\n\nb"}).out;
    const ToolResult read = chat("/read " + notes + "\nb\n", {"-n", "8"});
    CHECK(read.exit_code == 0);
    CHECK(read.out == both);
    CHECK(chat("/read " + notes + "\n/read\nb\n", {"-n", "8"}).out == chat("b\n", {"-n", "8"}).out);
    for (const char* bad : {"bad", "missing", ""}) {
      CAPTURE(bad);
      const std::string path = (folder.path() / bad).string();
      const ToolResult refused = chat("/read " + path + "\nb\n", {"-n", "8"});
      CHECK(refused.exit_code != 0);
      CHECK(contains(refused.err, path));
      CHECK(refused.out == chat("b\n", {"-n", "8"}).out);
    }
  }

  TEST_CASE("/save FILE.md writes what was said; another file of that name is left alone") {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "said.md").string();
    const ToolResult result =
        chat("hello\n/save " + file + "\nonce more\n/save " + file + "\n", {"-n", "8"});
    CHECK(result.exit_code == 0);
    const std::string written = content(file);
    CHECK(written.starts_with(
        "<!-- written by hyb chat -->\n# Chat\n\n## user\n\nhello\n\n## assistant\n\n"));
    CHECK(contains(written, "\n## user\n\nonce more\n\n## assistant\n\n"));
    const std::string other = folder.write("other.md", "# Chat\n").string();
    const ToolResult refused = chat("hello\n/save " + other + "\n/copy\n", {"-n", "8"});
    CHECK(refused.exit_code != 0);
    CHECK(contains(refused.err, "other.md: is there and is no chat"));
    CHECK(contains(refused.err, "/copy: needs a terminal"));
    CHECK(content(other) == "# Chat\n");
    const std::string long_name = (folder.path() / std::string(300, 'a')).string() + ".md";
    const ToolResult goes_on = chat("hello\n/save " + long_name + "\nonce more\n", {"-n", "8"});
    CHECK(contains(goes_on.err, "File name too long"));
    CHECK(lines(goes_on.out) == lines(chat("hello\nonce more\n", {"-n", "8"}).out));
  }

  TEST_CASE("/save and /read know the home folder; other endings than .md are no names") {
    const TemporaryFolder folder;
    folder.write("note.txt", "hello");
    const ToolResult result =
        run_tool({.arguments = {"chat", fixture, "-n", "8"},
                  .input = "hello\n/save ~/said.md\n/read ~/note.txt\nonce more\n",
                  .environment = {{"HOME", folder.path()}}});
    CHECK(result.exit_code == 0);
    CHECK(content(folder.path() / "said.md").starts_with("<!-- written by hyb chat -->\n"));
    const ToolResult refused = chat("hello\n/save said.txt\n", {"-n", "8"});
    CHECK(contains(refused.err, "said.txt is the name of a text"));
    CHECK(contains(chat("a\n/undo\n/undo\n", {"-n", "8"}).err, "/undo: this is the beginning"));
    CHECK(contains(chat("/undo\n").err, "/undo: nothing has been said yet"));
  }

  TEST_CASE("commands talk on stderr") {
    const ToolResult result = chat("a\n/stats\n/help\n/set\n/exit\nnot read\n", {"-n", "3"});
    CHECK(result.exit_code == 0);
    CHECK(result.out == chat("a\n", {"-n", "3"}).out);
    CHECK(contains(result.err, "3 tokens, ended by length"));
    CHECK(contains(result.err, "/undo [N]"));
    CHECK(contains(result.err, "temperature"));
  }

  TEST_CASE("an error is reported, the chat continues, the exit code reflects it") {
    for (const char* bad : {"/nope", "/set top_p 7", "/undo", "/regen", "bad \xff byte"}) {
      CAPTURE(bad);
      const ToolResult result = chat(std::string(bad) + "\na\n", {"-n", "3"});
      CHECK(result.exit_code == 2);
      CHECK(result.err.starts_with("hyb: error: "));
      CHECK(lines(result.err) == 1);
      CHECK(result.out == chat("a\n", {"-n", "3"}).out);
    }
    CHECK(chat("//nope\n", {"-n", "3"}).exit_code == 0);
  }

  TEST_CASE("a conversation at its limit says so and loses nothing") {
    const std::string filler(400, 'x');
    const ToolResult result =
        chat("a\n" + filler + "\n/undo\na\n", {"-n", "3", "--context", "128"});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "more than the limit of 127"));
    CHECK(contains(result.err, "/undo"));
    const std::string a = chat("a\n", {"-n", "3"}).out;
    CHECK(result.out == a + a);  // the long message never came in, so /undo took the first back
  }

  TEST_CASE("flags out of range are usage errors before anything is said") {
    const ToolResult result = chat("a\n", {"--top-p", "7"});
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
  }

  TEST_CASE("a model without a chat template names the way to use it") {
    const TemporaryFolder folder;
    copy_without_template(folder);
    const ToolResult result =
        run_tool({.arguments = {"chat", folder.path().string()}, .input = "a\n"});
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "no chat template"));
    CHECK(contains(result.err,
                   "--chat-template FILE gives it one; run and batch continue plain "
                   "text with --raw"));
    CHECK(result.out.empty());
    const std::string chatml = HYB_TESTS_DIR "/core/text/jinja/templates/chatml.jinja";
    const ToolResult given = run_tool(
        {.arguments = {"chat", folder.path().string(), "--chat-template", chatml, "-n", "2"},
         .input = "a\n"});
    CHECK(given.exit_code == 0);
    CHECK(!given.out.empty());
  }

  TEST_CASE("a reader that leaves ends the chat quietly, a full disk does not") {
    const std::string command = "\"$HYB\" chat " + fixture + " --ignore-eos";
    const ToolResult gone =
        run_shell("(" + command + " --context 1000000 -n 20000; echo \"code $?\" >&2) | head -c 20",
                  "a\nb\nc\n");
    CHECK(gone.out.size() == 20);
    CHECK(gone.err == "code 0\n");
    const ToolResult full = run_shell(command + " > /dev/full", "a\n");
    CHECK(full.exit_code == 1);
    CHECK(contains(full.err, "No space left on device"));
    const ToolResult closed = run_shell(command + " >&-", "a\n");
    CHECK(closed.exit_code == 1);
    CHECK(contains(closed.err, "stdout"));
  }

  TEST_CASE("signals end a chat of a script with the part that was said") {
    for (const auto& [signal, code] : {std::pair{"INT", 130}, {"TERM", 143}, {"HUP", 143}}) {
      CAPTURE(signal);
      const ToolResult result = run_tool(
          {.arguments = {"--foreground", "--preserve-status", "-s", signal, "1", HYB_BINARY, "chat",
                         fixture, "--ignore-eos", "--context", "1000000"},
           .input = "a\nb\n",
           .program = "timeout"});
      CHECK(result.exit_code == code);
      CHECK(result.out.ends_with('\n'));
      CHECK(result.out.size() > 100);
      CHECK(result.err.empty());
    }
  }
}

}  // namespace surface_chat_test
