#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hyb::testing {

/// The bytes of a file; "" where there is none.
inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return (std::ostringstream() << in.rdbuf()).str();
}

}  // namespace hyb::testing
