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

const std::vector<std::string> commands = {"batch",    "bench",    "chat",   "doctor", "fit",
                                           "inspect",  "list",     "render", "replay", "run",
                                           "sessions", "tokenize", "verify"};

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

  TEST_CASE("a command line that is refused names what is wrong, in the order typed") {
    const auto error = [](std::vector<std::string> arguments) {
      const ToolResult result = run_tool({.arguments = std::move(arguments)});
      CHECK(result.exit_code == 2);
      CHECK(result.out == "");
      CHECK(result.err.starts_with("hyb: error: "));
      CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
      return result.err;
    };
    CHECK(error({"run", "--bogus1", "--bogus2", "x"}) ==
          "hyb: error: --bogus1: unknown option; --bogus2: unknown option; see hyb run --help\n");
    CHECK(contains(error({"run", "--temprature", "1"}), "the nearest is --temperature"));
    CHECK(contains(error({"run", "--temprature=1"}), "--temprature: unknown option, the nearest"));
    CHECK(contains(error({"chat", "--svg", "x"}), "no option of hyb chat; hyb bench has it"));
    CHECK(contains(error({"bench", "compare", "--alhpa", "1", "a", "b"}), "nearest is --alpha"));
    CHECK(contains(error({"insepct", "x"}), "'insepct' is not a command; the nearest is inspect"));
    CHECK(contains(error({"serve", "--port", "80"}), "hyb has no server: hyb batch"));
    CHECK(contains(error({"pull", "org/name"}), "hyb downloads nothing: fetch a model with"));
    CHECK(contains(error({"What is it?"}), "a prompt needs a command"));
    CHECK(contains(error({"org/name"}), "hyb chat org/name"));
    for (const char* option : {"-ngl", "--gpu-layers", "--n-gpu-layers"}) {
      CHECK(contains(error({"run", option, "99", "-p", "x"}),
                     std::string(option) + ": a model is on one device as a whole"));
    }
    CHECK(contains(error({"batch", "--input-file", "x"}), "is a word: hyb batch [MODEL] IN"));
    CHECK(contains(error({"batch", "-np", "999", "x"}), "--parallel: Value 999 not in range"));
    CHECK(contains(error({"run", "-b", "512", "-p", "x"}), "of one step are --ubatch TOKENS"));
    CHECK(
        contains(error({"run", "-ub", "70000", "-p", "x"}), "--ubatch: Value 70000 not in range"));
    CHECK(contains(error({"batch"}), "the file of requests is missing"));
    CHECK(contains(error({"run", "--threads", "9999"}), "--threads: Value 9999 not in range"));
    CHECK(contains(error({"--lgo-level", "debug", "run"}), "the nearest is --log-level"));
  }

  TEST_CASE("help and version in all spellings, and with a full disk") {
    const ToolResult bare = run_tool({.arguments = {}});
    CHECK(bare.exit_code == 2);
    CHECK(bare.err == "");
    CHECK(bare.out == output_of({"--help"}));
    CHECK(bare.out == output_of({"help"}));
    CHECK(contains(bare.out, "Answer one prompt and exit"));
    CHECK(output_of({"help", "run"}) == output_of({"run", "--help"}));
    CHECK(output_of({"version"}) == output_of({"--version"}));
    for (const char* command : {"--version", "--help", "run --help"}) {
      const ToolResult full = run_shell("$HYB " + std::string(command) + " > /dev/full");
      CHECK(full.exit_code == 1);
      CHECK(full.err == "hyb: error: stdout: cannot write: No space left on device\n");
    }
  }

  TEST_CASE("the man page is sound roff") {
    if (!has_program("groff")) return;
    const ToolResult page = run_shell("$HYB manual | groff -man -Tutf8 -ww | col -b");
    CHECK(page.exit_code == 0);
    CHECK(page.err == "");
    CHECK(contains(page.out, "HYB(1)"));
    CHECK(contains(page.out, "--file FILE"));
    CHECK(contains(page.out, "hyb bench compare"));
  }
}

}  // namespace surface_help_test
