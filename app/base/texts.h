#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hyb::app {

/// "512 B", "12.3 MiB": for people, in binary units.
std::string bytes_text(std::size_t bytes);

/// "340.33 M", "8.00 B".
std::string parameters_text(std::int64_t parameters);

/// Throws Error(usage) naming `what` and the byte offset when text is not UTF-8.
void check_utf8(std::string_view text, std::string_view what);

}  // namespace hyb::app
