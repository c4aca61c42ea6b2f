#pragma once

#include <cstdlib>
#include <string_view>

namespace hyb::testing {

/// HYB_TEST_LEVEL=full enables tests that are too slow for every run.
inline bool is_full_level() {
  const char* const level = std::getenv("HYB_TEST_LEVEL");
  return level != nullptr && std::string_view(level) == "full";
}

}  // namespace hyb::testing
