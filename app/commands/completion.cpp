#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "app/cli_outline.h"
#include "app/commands/commands.h"
#include "app/ui/process.h"
#include "app/version.h"

namespace hyb::app {
namespace {

/// The whole command line, of which `cli` is one command.
CommandOutline outline_above(const CLI::App& cli) { return cli_outline(*cli.get_parent()); }

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
  return [shell, &cli] { return completion_main(*shell, outline_above(cli)); };
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
