#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace hyb::log {

enum class Level : std::uint8_t { trace, debug, info, warn, error, off };

/// The names of the levels, in their order.
inline constexpr std::array<std::string_view, 6> level_names = {"trace", "debug", "info",
                                                                "warn",  "error", "off"};

/// Empty for a name that is not in level_names.
std::optional<Level> level_from_name(std::string_view name);

/// Drops messages below `level`, Level::info by default. All messages go to stderr.
void set_level(Level level);

/// Returns whether messages of this level are printed.
bool is_shown(Level level);

/// Colours the level; by default it is plain.
void set_colour(bool colour);

/// Every message passes through `filter` before it is printed: names and texts in it come from
/// outside, and the app knows what a terminal obeys. Null, the default: as they are.
void set_filter(std::string (*filter)(std::string_view));

/// Calls `action` while no thread prints. For fork(), whose child would wait for such a thread.
void while_silent(const std::function<void()>& action);

void debug(std::string_view text);
void info(std::string_view text);
void warning(std::string_view text);
void error(std::string_view text);

}  // namespace hyb::log
