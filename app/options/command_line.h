#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/options/words.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace hyb::app {

/// The words of --color; no value: colours on a terminal.
inline constexpr Words<std::optional<bool>, 3> colours = {
    {{"auto", std::nullopt}, {"always", true}, {"never", false}}};

/// The words after the program's name, spelled as CLI11 reads them: long options with one dash get
/// two (-sys, -pg of bench), --color alone is --color=always, `help [COMMAND]` is `[COMMAND]
/// --help`, `version` is --version. Throws Error(usage) for options of other tools with one dash,
/// which CLI11 would cut into a short option and its value (-ngl: -n gl).
std::vector<std::string> command_words(const CLI::App& cli, int argc, const char* const* argv);

/// The innermost command that was typed, and its name with those of the commands it belongs to.
const CLI::App& typed_command(const CLI::App& cli);
std::string typed_name_of(const CLI::App& command);

/// Why a value was refused.
std::string value_text(const CLI::ParseError& error);

/// Why the command line was refused, in one line: what is unknown, in the order typed, with the
/// nearest name or what hyb has instead, and which help to read. `cli` threw `error` from parse().
std::string usage_text(const CLI::App& cli, const CLI::ParseError& error);

}  // namespace hyb::app
