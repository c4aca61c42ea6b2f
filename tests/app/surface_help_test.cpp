#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_help_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

std::string output_of(std::vector<std::string> arguments) {
  const ToolResult result = run_tool({.arguments = std::move(arguments)});
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return result.out;
}

bool has_program(const std::string& name) { return run_shell("command -v " + name).exit_code == 0; }

/// What bash offers for the last of `words`, one a line.
std::string completions(const std::string& words) {
  const TemporaryFolder folder;
  folder.write("prompt.txt", "");
  const std::string script = "cd " + folder.path().string() +
                             "\neval \"$($HYB completion bash)\"\ncompopt() { :; }\n"
                             "COMP_WORDS=(" +
                             words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_hyb\n"
                             "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const ToolResult result = run_tool(
      {.arguments = {"-c", script}, .environment = {{"HYB", HYB_BINARY}}, .program = "bash"});
  CHECK(result.err == "");
  return result.out;
}

/// The long options that --help of a command lists.
std::vector<std::string> options_in_help(const std::string& command) {
  const std::string help = output_of({command, "--help"});
  const std::regex option("--[a-z0-9][a-z0-9-]*");
  std::vector<std::string> options;
  std::size_t begin = 0;
  while (begin < help.size()) {
    const std::size_t end = std::min(help.find('\n', begin), help.size());
    const std::string line = help.substr(begin, std::min<std::size_t>(end - begin, 30));
    std::smatch found;
    if (line.starts_with("  -") && std::regex_search(line, found, option)) {
      options.push_back(found.str());
    }
    begin = end + 1;
  }
  return options;
}

const std::vector<std::string> commands = {"batch", "bench",    "chat",     "doctor",
                                           "fit",   "inspect",  "render",   "replay",
                                           "run",   "sessions", "tokenize", "verify"};

}  // namespace

TEST_SUITE("app/surface_help") {
  TEST_CASE("bash completes commands, options, values and files") {
    const ToolResult checked = run_shell("$HYB completion bash | bash -n");
    CHECK(checked.exit_code == 0);
    CHECK(checked.err == "");
    CHECK(completions("hyb ver") == "verify\n");
    CHECK(contains(completions("hyb ''"), "completion\n"));
    CHECK(contains(completions("hyb --"), "--version\n"));
    CHECK(completions("hyb --log-level w") == "warn\n");
    CHECK(completions("hyb --log-level warn ver") == "verify\n");
    CHECK(completions("hyb run --prompt-f") == "--prompt-file\n");
    CHECK(completions("hyb run --device ''") == "auto\ncpu\ncuda\n");
    CHECK(completions("hyb run --device = c") == "cpu\ncuda\n");
    CHECK(completions("hyb run --prompt-file pro") == "prompt.txt\n");
    CHECK(completions("hyb run -p te") == "\n");
    CHECK(completions("hyb chat pro") == "prompt.txt\n");
    CHECK(completions("hyb bench co") == "compare\n");
    CHECK(completions("hyb bench compare --thr") == "--threshold\n");
    CHECK(completions("hyb completion ''") == "bash\nzsh\nfish\n");
    CHECK(completions("hyb sessions s") == "show\n");
  }

  TEST_CASE("every option of the help is in the man page and in all completions") {
    const std::string man = output_of({"manual"});
    const std::string bash = output_of({"completion", "bash"});
    const std::string zsh = output_of({"completion", "zsh"});
    const std::string fish = output_of({"completion", "fish"});
    for (const std::string& command : commands) {
      CAPTURE(command);
      CHECK(contains(man, "\n.SS hyb " + command + "\n"));
      const std::vector<std::string> options = options_in_help(command);
      CHECK(options.size() >= 2);
      for (const std::string& option : options) {
        CAPTURE(option);
        std::string escaped;
        for (const char letter : option) escaped += letter == '-' ? "\\-" : std::string(1, letter);
        CHECK(contains(man, "\\fB" + escaped + "\\fR"));
        CHECK(contains(bash, option));
        CHECK(contains(zsh, "'*" + option));
        CHECK(contains(fish, "__fish_seen_subcommand_from " + command + "'"));
        CHECK(contains(fish, " -l " + option.substr(2) + " "));
      }
    }
    CHECK(contains(fish, "-l device -x -a 'auto cpu cuda'"));
    CHECK(contains(zsh, ":auto|cpu|cuda:(auto cpu cuda)'"));
    CHECK(contains(man, ".SH EXIT STATUS\n"));
    CHECK(zsh.starts_with("#compdef hyb\n"));
    for (const char* const shell : {"zsh", "fish"}) {
      if (!has_program(shell)) continue;
      const ToolResult checked =
          run_shell(std::string("$HYB completion ") + shell + " | " + shell + " -n");
      CHECK(checked.exit_code == 0);
      CHECK(checked.err == "");
    }
    CHECK(run_tool({.arguments = {"completion", "csh"}}).exit_code == 2);
  }

  TEST_CASE("the man page is sound roff") {
    if (!has_program("groff")) return;
    const ToolResult page = run_shell("$HYB manual | groff -man -Tutf8 -ww | col -b");
    CHECK(page.exit_code == 0);
    CHECK(page.err == "");
    CHECK(contains(page.out, "HYB(1)"));
    CHECK(contains(page.out, "--prompt-file FILE"));
    CHECK(contains(page.out, "hyb bench compare"));
  }
}

}  // namespace surface_help_test
