#pragma once

#include <algorithm>
#include <string_view>

namespace hyb::app {

inline constexpr std::string_view white_space = " \t\r\n";

/// Without the white space that it begins with.
inline std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
  return text;
}

/// Without the white space around it.
inline std::string_view trim(std::string_view text) {
  text = trim_left(text);
  return text.substr(0, text.find_last_not_of(white_space) + 1);
}

}  // namespace hyb::app
