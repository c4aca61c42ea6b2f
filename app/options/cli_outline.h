#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace hyb::app {

/// One option of a command as its help has it.
struct OptionOutline {
  std::vector<std::string> names;  ///< with their dashes, short ones first; of a positional: empty
  std::string positional;          ///< the name of a positional argument: "MODEL"
  std::string value;               ///< what it takes: "TEXT", "FILE", ...; empty: a flag
  /// The only values it takes, of --help what may follow it; empty: any.
  std::vector<std::string> choices;
  std::string help;                        ///< with range and default, in words
  std::string short_help;                  ///< the same of its first sentence
  std::string group;                       ///< a HelpGroup's name; empty: in none
  std::optional<std::size_t> usual_place;  ///< in the short help, positional ones first
  bool is_required = false;
  bool takes_file = false;
  std::string names_of =
      {};                ///< candidates that `hyb completion SHELL --names` prints; empty: none
  bool is_list = false;  ///< takes any number of values

  bool is_flag() const { return positional.empty() && value.empty(); }
};

/// A command and its subcommands, in the order of the help.
struct CommandOutline {
  std::string name;
  std::string about;
  std::string group;  ///< its heading in the help
  std::vector<OptionOutline> options;
  std::vector<CommandOutline> commands;
};

/// Options that are listed together, in the order of the help.
struct OptionSection {
  std::string_view title;  ///< empty: the usual ones, which come first
  std::vector<const OptionOutline*> options = {};
};

/// The options that help about `topic` lists: "": the usual ones, "all": every one, once, or those
/// of the HelpGroup of this name.
std::vector<OptionSection> sections_of(const CommandOutline& command, std::string_view topic);

/// The command line as it was declared: completions and the man page are made from it, so they
/// cannot say anything else than --help.
CommandOutline cli_outline(const CLI::App& cli);

/// Between single quotes of a shell.
std::string single_quoted(std::string_view text);

/// Completion scripts: commands, options, the values of those that take one of a few, files, and
/// names that the scripts ask hyb itself for.
std::string bash_completion(const CommandOutline& root);
std::string zsh_completion(const CommandOutline& root);
std::string fish_completion(const CommandOutline& root);

/// hyb(1), or with the name of a command hyb-COMMAND(1), in roff with the man macros. `version` is
/// what --version prints. Throws Error(usage) where there is no such command.
std::string man_page(const CommandOutline& root, const std::string& command,
                     const std::string& version);

}  // namespace hyb::app
