#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace hyb::app {

struct CommandOutline;

/// Options that `--help NAME` shows together. An option is in the group that its declaration names,
/// else in the one that lists it here.
struct HelpGroup {
  std::string_view name, title;
  std::string_view options = {};  ///< long names, each between spaces
};

/// In the order of the help.
std::span<const HelpGroup> help_groups();

/// The group that lists an option; empty: none does.
std::string_view listed_group(std::string_view option);

/// Options in the short help of a command.
struct CommandHelp {
  std::string_view command;
  std::string_view usual;  ///< options as in HelpGroup; empty: all but tuning and messages
  std::string_view examples[2];

  /// The place of an option among the usual ones; none: it is not one.
  std::optional<std::size_t> place_of(std::string_view option, std::string_view group) const;
};

/// Finds the row of a command by its own name ("compare"); an empty one where it has none.
CommandHelp command_help(std::string_view command);

/// Takes what help is about out of the words of the command line: GROUP of `--help GROUP` and
/// `--help=GROUP`, or "all"; "": neither is there.
std::string take_help_topic(std::vector<std::string>& words);

/// The groups that a command has options of.
std::vector<std::string> topics_of(const CommandOutline& command);

/// The help of the innermost command that was typed, in lines of at most `width` columns: its usual
/// options, those of a group, or all. Throws Error(usage) where the command has none of the group.
std::string help_text(const CLI::App& cli, std::string_view topic, int width);

}  // namespace hyb::app
