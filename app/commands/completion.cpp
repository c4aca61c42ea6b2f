#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/machine/version.h"
#include "app/model/model_source.h"
#include "app/options/cli_outline.h"
#include "app/sessions/session_folder.h"
#include "app/ui/process.h"
#include "core/io/gguf_stores.h"

namespace hyb::app {
namespace {

/// The whole command line, of which `cli` is one command.
CommandOutline outline_above(const CLI::App& cli) { return cli_outline(*cli.get_parent()); }

/// Prints the names that shells complete, one a line. Opens nothing, since a person waits for Tab.
void print_names(const std::string& kind) {
  const Environment environment = read_environment();
  std::vector<std::string> names;
  if (kind == "sessions") {
    if (environment.data_folder)
      names = SessionFolder(*environment.data_folder / "sessions").names();
  } else {
    names = models_in_hub(hub_folder(environment.hub));
    for (const StoredGguf& stored : stored_ggufs(environment.hub)) names.push_back(stored.name);
    names.emplace_back("demo");
    const std::vector<std::string> presets = preset_names();
    if (kind == "configurations") names.insert(names.end(), presets.begin(), presets.end());
  }
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@+-";
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    if (name.find_first_not_of(plain) == std::string::npos) write_stdout(name + '\n');
  }
}

int completion_main(const std::string& shell, const CommandOutline& root) {
  if (shell == "bash") {
    write_stdout(bash_completion(root));
  } else {
    write_stdout(shell == "zsh" ? zsh_completion(root) : fish_completion(root));
  }
  return 0;
}

Action describe_completion(CLI::App& cli) {
  const auto shell = std::make_shared<std::string>();  // CLI11 keeps pointers into it
  cli.add_option("shell", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  const auto names = std::make_shared<std::string>();
  cli.add_option("--names", *names)
      ->group("")  // for the scripts
      ->check(CLI::IsMember({"models", "configurations", "sessions"}));
  return [shell, names, &cli] {
    if (names->empty()) return completion_main(*shell, outline_above(cli));
    print_names(*names);
    return 0;
  };
}

Action describe_manual(CLI::App& cli) {
  const auto command = std::make_shared<std::string>();  // CLI11 keeps pointers into it
  cli.add_option("command", *command, "the command that the page is about; default: hyb itself");
  return [command, &cli] {
    write_stdout(man_page(outline_above(cli), *command, version_text()));
    return 0;
  };
}

}  // namespace

const Command completion_command = {"completion", "Print a completion script for a shell",
                                    describe_completion, "Installation"};
const Command manual_command = {"manual", "Print a man page (roff): hyb(1), hyb-run(1), ...",
                                describe_manual, "Installation"};

}  // namespace hyb::app
