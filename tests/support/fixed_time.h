#pragma once

#include <ctime>

namespace hyb::testing {

/// When templates are rendered in tests and by the scripts that compare them with transformers'
/// answers: 2025-06-15 12:30:45.
inline std::tm fixed_time() {
  std::tm now{};
  now.tm_year = 125;
  now.tm_mon = 5;
  now.tm_mday = 15;
  now.tm_hour = 12;
  now.tm_min = 30;
  now.tm_sec = 45;
  now.tm_isdst = -1;
  return now;
}

}  // namespace hyb::testing
