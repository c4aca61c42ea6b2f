#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hyb::app {

/// A line that begins with a slash.
struct SlashCommand {
  enum class Kind : std::uint8_t {
    help,
    clear,
    system,
    think,
    set,
    stats,
    memory,
    regen,
    undo,
    edit,
    fork,
    go_to,
    checkpoints,
    save,
    load,
    sessions,
    exit
  };
  Kind kind;
  /// The rest of the line, without white space around it; of edit, what stands behind the number.
  std::string argument = {};
  std::int32_t count = 1;  ///< of regen and undo; of edit the message's number, 0: the last one
};

/// Whether the text is meant for us: it begins with one slash. A text for the model that begins
/// with a slash is entered with two.
bool is_slash_command(std::string_view text);

/// Throws Error(usage): an unknown command (names the nearest), an argument too many or not a
/// number.
SlashCommand parse_slash_command(std::string_view text);

/// Every name and alias, with the slash, sorted.
std::vector<std::string> slash_names();

/// What /help shows.
std::string slash_help();

}  // namespace hyb::app
