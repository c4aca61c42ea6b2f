#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

namespace hyb {

/// The path that a person typed, as a shell would have it: a leading ~ is `home`. Without a home it
/// stays as it is.
inline std::filesystem::path with_home(const std::string& text,
                                       const std::optional<std::string>& home) {
  const bool is_at_home = text == "~" || text.starts_with("~/");
  if (!is_at_home || !home || home->empty()) return text;
  return std::filesystem::path(*home) / text.substr(std::min<std::size_t>(2, text.size()));
}

}  // namespace hyb
