#include <algorithm>
#include <regex>
#include <sstream>
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
  folder.write("pro.gguf", "");
  folder.write("program/config.json", "{}");
  for (const char* name : {"org--small-1", "org--small-2", "org--$(touch run)", "other--tiny"}) {
    folder.write("hub/models--" + std::string(name) + "/snapshots/x/config.json", "{}");
    folder.write("hub/models--" + std::string(name) + "/refs/main", "x");
  }
  folder.write("ollama/manifests/registry.ollama.ai/library/gemma3/270m", "{}");
  folder.write("data/hyb/sessions/story.session", "");
  folder.write("data/hyb/sessions/tale.session", "");
  const std::string script =
      "cd " + folder.path().string() +
      "\neval \"$($HYB completion bash)\"\ncompopt() { :; }\nhyb() { $HYB \"$@\"; }\n"
      "COMP_WORDS=(" +
      words +
      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_hyb\n"
      "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const ToolResult result = run_tool({.arguments = {"-c", script},
                                      .environment = {{"HYB", HYB_BINARY},
                                                      {"HF_HUB_CACHE", folder.path() / "hub"},
                                                      {"OLLAMA_MODELS", folder.path() / "ollama"},
                                                      {"XDG_DATA_HOME", folder.path() / "data"}},
                                      .program = "bash"});
  CHECK(result.err == "");
  CHECK_FALSE(std::filesystem::exists(folder.path() / "run"));
  return result.out;
}

/// The long options that --help all of a command lists.
std::vector<std::string> options_in_help(const std::string& command) {
  const std::string help = output_of({command, "--help", "all"});
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

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Every command that the help of hyb lists, and those that have no word before them.
std::vector<std::vector<std::string>> all_commands() {
  std::vector<std::vector<std::string>> all = {{}, {"bench", "compare"}};
  for (const std::string& line : lines_of(output_of({"--help"}))) {
    if (line == "Examples:") break;
    if (line.starts_with("  ") && line[2] != ' ' && line[2] != '-') {
      all.push_back({line.substr(2, line.find(' ', 2) - 2)});
    }
  }
  return all;
}

std::string help_of(std::vector<std::string> command, const std::string& topic,
                    const std::string& columns = "80") {
  command.push_back(topic.empty() ? "--help" : "--help=" + topic);
  const ToolResult result =
      run_tool({.arguments = std::move(command), .environment = {{"COLUMNS", columns}}});
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return result.out;
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& line : lines_of(text)) longest = std::max(longest, line.size());
  return longest;
}

const std::vector<std::string> commands = {"batch",  "bench",   "chat",     "doctor",   "eval",
                                           "fit",    "inspect", "list",     "quantize", "render",
                                           "replay", "run",     "sessions", "tokenize", "verify"};

}  // namespace

TEST_SUITE("app/surface_help") {
  TEST_CASE("what llama-bench means by -b never silently counts sequences") {
    const auto bench = [](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), "bench");
      return run_tool({.arguments = std::move(arguments)});
    };
    const ToolResult pasted = bench({"demo", "-b", "2", "-ub", "512", "-p", "16", "-n", "4"});
    CHECK(pasted.exit_code == 2);
    CHECK(contains(pasted.err, "-ub alone bounds a step; --batch N measures N sequences"));
    const ToolResult alone = bench({"demo", "-b", "1,2", "-p", "0", "-n", "4", "-r", "1"});
    CHECK(alone.exit_code == 0);
    CHECK(contains(alone.err, "-b 2 counts sequences at once; llama-bench's -b is -u here"));
    const ToolResult named =
        bench({"demo", "--batch", "1", "-ub", "64", "-p", "16", "-n", "4", "-r", "1"});
    CHECK(named.exit_code == 0);
    CHECK_FALSE(contains(named.err, "llama-bench"));
  }

  TEST_CASE("the help says which words a command takes") {
    CHECK(contains(output_of({"completion", "--help"}), "Usage: hyb completion bash|zsh|fish"));
    const std::string sessions = output_of({"sessions", "--help"});
    CHECK(contains(sessions, "Usage: hyb sessions [list|show|export|rename|rm]"));
    CHECK(contains(sessions, "\n  list|show|export|rename|rm"));
    CHECK(contains(output_of({"manual", "sessions"}), "list|show|export|rename|rm"));
  }

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
    CHECK(completions("hyb run --prompt-file prom") == "prompt.txt\n");
    CHECK(completions("hyb run -p te") == "\n");
    CHECK(completions("hyb chat pro") == "program/\npro.gguf\n");
    CHECK(completions("hyb batch pro") == "pro.gguf\nprogram\nprompt.txt\n");
    CHECK(completions("hyb batch demo pro") == "pro.gguf\nprogram\nprompt.txt\n");
    CHECK(completions("hyb bench compa") == "compare\n");
    CHECK(completions("hyb bench compare --thr") == "--threshold\n");
    CHECK(completions("hyb completion ''") == "bash\nzsh\nfish\n");
    CHECK(completions("hyb sessions s") == "show\n");
    CHECK(completions("hyb replay --policy lru,gd,vl") == "lru,gd,vllm+\nlru,gd,vllm\n");
    CHECK(completions("hyb bench --preset pd-m") == "pd-mix\n");
    CHECK(completions("hyb bench --dataset-name = co") == "corpus\n");
    CHECK(completions("hyb bench --policy gd,l") == "gd,lru\n");
    CHECK(completions("hyb bench --policy gd --policy n") == "none\n");
    CHECK(completions("hyb run --help sa") == "sampling\n");
    CHECK(completions("hyb bench -h ke") == "kernels\n");
  }

  TEST_CASE("bash completes names of models, presets and sessions, which hyb says") {
    CHECK(completions("hyb run org/") == "org/small-1\norg/small-2\n");
    CHECK(completions("hyb batch org/small-2") == "org/small-2\n");
    CHECK(completions("hyb bench -m oth") == "other/tiny\n");
    CHECK(completions("hyb run gemma3 : 2") == "270m\n");
    CHECK(completions("hyb run -m gemma3 :") == "270m\n");
    CHECK(completions("hyb run granite-4.0-h-350") == "\n");  // presets have no weights
    CHECK(completions("hyb fit granite-4.0-h-350") == "granite-4.0-h-350m\n");
    CHECK(completions("hyb chat --session ''") == "story\ntale\n");
    CHECK(completions("hyb sessions show s") == "story\n");
    CHECK(completions("hyb sessions rm story t") == "tale\n");
    CHECK(output_of({"completion", "bash", "--names", "models"}).find("demo\n") !=
          std::string::npos);
  }

  TEST_CASE("every option of the help is in the man page and in all completions") {
    const std::string man = output_of({"manual"});
    const std::string bash = output_of({"completion", "bash"});
    const std::string zsh = output_of({"completion", "zsh"});
    const std::string fish = output_of({"completion", "fish"});
    for (const std::string& command : commands) {
      CAPTURE(command);
      CHECK(contains(man, "\n.BR hyb\\-" + command + " (1)\n"));
      const std::string page = output_of({"manual", command});
      for (const char* title : {"SYNOPSIS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"})
        CHECK(contains(page, std::string(".SH ") + title + "\n"));
      const std::vector<std::string> options = options_in_help(command);
      CHECK(options.size() >= 2);
      for (const std::string& option : options) {
        CAPTURE(option);
        std::string escaped;
        for (const char letter : option) escaped += letter == '-' ? "\\-" : std::string(1, letter);
        CHECK(contains(page, "\\fB" + escaped + "\\fR"));
        CHECK(contains(bash, option));
        CHECK(contains(zsh, "'*" + option));
        CHECK(contains(fish, "__fish_seen_subcommand_from " + command + "'"));
        CHECK(contains(fish, " -l " + option.substr(2) + " "));
      }
    }
    CHECK(contains(fish, "-l device -x -a 'auto cpu cuda'"));
    CHECK(contains(zsh, ":auto|cpu|cuda:(auto cpu cuda)'"));
    for (const char* title : {"ENVIRONMENT", "FILES", "EXIT STATUS"})
      CHECK(contains(man, std::string(".SH ") + title + "\n"));
    const ToolResult none = run_tool({.arguments = {"manual", "nosuch"}});
    CHECK(none.exit_code == 2);
    CHECK(contains(none.err, "manual: no command nosuch; there are batch"));
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

  TEST_CASE("help fits a terminal: short without a group's name, and whole on request") {
    const auto commands_there = all_commands();
    CHECK(commands_there.size() == commands.size() + 4);
    for (const std::vector<std::string>& command : commands_there) {
      CAPTURE(command);
      const std::string usual = help_of(command, ""), all = help_of(command, "all");
      CHECK(longest_line(usual) <= 80);
      CHECK(longest_line(all) <= 80);
      CHECK(lines_of(usual).size() <= 42);
      CHECK(!contains(all, "Options without a group"));
      for (const char* const noise :
           {":INT", "TEXT:", "Excludes", "REQUIRED", ":{", "(0x)", " in ["})
        CHECK(!contains(all, noise));
      for (const std::string& line : lines_of(all)) {
        const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
        const bool is_hanging = indent == 0 || indent == 2 || indent == 6 || indent == 26;
        CHECK_MESSAGE(is_hanging, line);
      }
      const auto lines = lines_of(usual);
      const auto examples = std::find(lines.begin(), lines.end(), "Examples:");
      REQUIRE(lines.end() - examples > 3);
      CHECK(examples[1].starts_with("  "));
      CHECK(examples[2].starts_with("  "));
      CHECK(examples[3] == "");
    }
  }

  TEST_CASE("help of a group has its options, in as many columns as there are") {
    const std::string sampling = output_of({"run", "--help", "sampling"});
    CHECK(sampling == output_of({"run", "--help=sampling"}));
    CHECK(sampling == output_of({"help", "run", "sampling"}));
    CHECK(contains(sampling, "\n  --temperature, --temp X\n"));
    CHECK(contains(sampling, "(0 to 100)"));
    CHECK(contains(sampling, "\n  --min-p X  "));
    CHECK(!contains(sampling, "--threads"));
    const std::string usual = output_of({"run", "--help"});
    CHECK(contains(usual, "\n  --temperature X  "));
    CHECK(contains(usual, "\nUsage: hyb run [MODEL] [PROMPT] [OPTION]...\n"));
    CHECK(!contains(usual, "--strict-vmm"));
    CHECK(contains(output_of({"run", "--help", "tuning"}), "--strict-vmm"));
    CHECK(contains(output_of({"bench", "--help", "kernels"}), "(default: 512)"));
    CHECK(longest_line(help_of({"run"}, "tuning", "60")) <= 60);
    CHECK(longest_line(help_of({"run"}, "all", "120")) > 100);
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"run", "--help=nothing"}, {"list", "--help", "sampling"}}) {
      const ToolResult wrong = run_tool({.arguments = arguments});
      CHECK(wrong.exit_code == 2);
      CHECK(wrong.out == "");
      CHECK(wrong.err.starts_with("hyb: error: "));
    }
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
    CHECK(contains(error({"chat", "--svg", "x"}),
                   "no option of hyb chat; hyb bench and hyb replay have it"));
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
    CHECK(contains(error({"batch", "-i", "x"}), "is a word: hyb batch [MODEL] IN"));
    CHECK(contains(error({"run", "-i", "-p", "x"}), "hyb chat is the conversation"));
    CHECK(contains(error({"run", "-st", "-p", "x"}), "-st: hyb run answers one prompt and ends"));
    CHECK(contains(error({"run", "-no-cnv", "-p", "x"}), "-no-cnv: hyb run answers one"));
    CHECK(contains(error({"run", "-mg", "0", "-p", "x"}), "-mg: CUDA_VISIBLE_DEVICES=N chooses"));
    CHECK(contains(error({"run", "--n", "2", "-p", "x"}), "are --json --choices N"));
    CHECK(contains(error({"run", "--mlock", "-p", "x"}), "weights are read into memory once"));
    CHECK(contains(error({"run", "--grammar-file", "x", "-p", "x"}), "--grammar FILE, --regex"));
    CHECK(error({"run", "-p", "a", "-p", "b"}) ==
          "hyb: error: --prompt is given 2 times; it takes one value; see hyb run --help\n");
    CHECK(contains(error({"run", "--temperature", "hot", "-p", "x"}),
                   "'hot' is not a number that --temperature takes"));
    CHECK(contains(error({"bench", "compare"}), "BEFORE is missing"));
    CHECK(contains(error({"replay"}), "TRACE is missing"));
    CHECK(!contains(error({"run", "--seed", "abc"}), "--system"));
    CHECK(contains(error({"run", "-system", "x"}), "a system prompt is --system TEXT"));
    CHECK(contains(error({"-q"}), "a command is missing: hyb chat talks"));
    CHECK(contains(error({"perplexity"}), "hyb eval MODEL FILE measures the perplexity"));
    CHECK(contains(error({"bench", "serve"}), "here options say what is measured"));
    CHECK(contains(error({"bench", "-o", "rows.json"}), "hyb bench -o json > FILE"));
    CHECK(contains(error({"batch"}), "the file of requests is missing"));
    CHECK(contains(error({"run", "--threads", "9999"}), "--threads: Value 9999 not in range"));
    CHECK(contains(error({"--lgo-level", "debug", "run"}), "the nearest is --log-level"));
    CHECK(
        contains(error({"help", "insepct"}), "'insepct' is not a command; the nearest is inspect"));
    CHECK(contains(error({"bench", "--plot", "/nosuch/x.svg"}), "there is no folder /nosuch"));
    CHECK(contains(error({"bench", "--preset", "pd-mix", "--record", "x"}),
                   "--record: means nothing for --preset pd-mix"));
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
    CHECK(output_of({"-V"}) == output_of({"--version"}));
    for (const char* command : {"--version", "--help", "run --help"}) {
      const ToolResult full = run_shell("$HYB " + std::string(command) + " > /dev/full");
      CHECK(full.exit_code == 1);
      CHECK(full.err == "hyb: error: stdout: cannot write: No space left on device\n");
    }
  }

  TEST_CASE("tables and verdicts take the columns that COLUMNS says") {
    const auto longest_of = [](std::vector<std::string> command, const char* columns) {
      const ToolResult result =
          run_tool({.arguments = std::move(command), .environment = {{"COLUMNS", columns}}});
      CHECK((result.exit_code == 0 || result.exit_code == 4));  // of fit: it does not fit
      return longest_line(result.out);
    };
    const std::vector<std::string> fit = {"fit",       "demo",  "--parallel", "4000",
                                          "--context", "30000", "--memory",   "1GiB"};
    CHECK(longest_of(fit, "80") <= 80);
    CHECK(longest_of(fit, "200") > 80);
    CHECK(longest_of({"list"}, "80") <= 80);
    CHECK(longest_of({"list"}, "40") < longest_of({"list"}, "80"));
  }

  TEST_CASE("the man page is sound roff") {
    if (!has_program("groff")) return;
    for (const char* name : {"", "run", "bench"}) {
      const ToolResult page =
          run_shell(std::string("$HYB manual ") + name + " | groff -man -Tutf8 -ww | col -b");
      CHECK(page.exit_code == 0);
      CHECK(page.err == "");
      CHECK(contains(page.out, name[0] == 0     ? "HYB(1)"
                               : name[0] == 'r' ? "--file FILE"
                                                : "hyb bench compare"));
    }
  }
}

}  // namespace surface_help_test
