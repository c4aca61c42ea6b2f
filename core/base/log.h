#pragma once

#include <string_view>

namespace hyb::log {

enum class Level { debug, info, warning, error };

/// What is below the level is dropped; `info` at start-up. All text goes to stderr.
void set_level(Level level);

/// Whether the level is coloured; without a call, only where stderr is a terminal.
void set_colour(bool colour);

void debug(std::string_view text);
void info(std::string_view text);
void warning(std::string_view text);
void error(std::string_view text);

}  // namespace hyb::log
