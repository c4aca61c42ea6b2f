#pragma once

#include <algorithm>
#include <string_view>

namespace hyb {

inline constexpr std::string_view white_space = " \t\r\n";

/// `text` without leading white space.
inline std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
  return text;
}

/// `text` without white space at both ends.
inline std::string_view trim(std::string_view text) {
  text = trim_left(text);
  return text.substr(0, text.find_last_not_of(white_space) + 1);
}

}  // namespace hyb
